from __future__ import annotations

from penstock.coordinator import Epochs


def test_epochs_know_their_number_and_whether_they_were_handed_over_before() -> None:
    assert len(Epochs(3, 5)) == 3
    assert str(Epochs(3, 5)) == "3..5"
    assert [Epochs(3, 5, attempt).repeat for attempt in (1, 2, 3)] == [False, True, True]
