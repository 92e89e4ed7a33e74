from __future__ import annotations

from tests.coordinator.stores import Samples

from penstock.coordinator.pending import PendingDeltas


def _pending(writes: int, *, view_every: int = 0) -> PendingDeltas[Samples]:
    pending: PendingDeltas[Samples] = PendingDeltas(Samples)
    for number in range(writes):
        pending.merge(Samples(cpu=number), 10)
        if view_every and number % view_every == 0:
            pending.freeze()
    return pending


def test_bytes_and_writes_are_counted_until_they_are_taken() -> None:
    pending = _pending(3)
    assert (pending.bytes, pending.writes) == (30, 3)
    assert pending.take().series == {"cpu": [0, 1, 2]}
    assert (pending.bytes, pending.writes) == (0, 0)


def test_without_views_a_flush_takes_the_delta_that_writes_were_merged_into() -> None:
    """No merge at flush time, which would stop the loop for as long as it takes."""
    pending = _pending(3)
    merged_into = pending._open
    assert pending.take() is merged_into


def test_with_views_a_flush_still_takes_every_write_in_order() -> None:
    for view_every in (1, 2, 3, 7):
        assert _pending(50, view_every=view_every).take().series == {"cpu": list(range(50))}


def test_many_views_leave_few_deltas() -> None:
    assert len(_pending(1000, view_every=1).freeze()) <= 10


def test_a_view_without_new_writes_is_the_same_deltas_again() -> None:
    pending = _pending(5)
    assert pending.freeze() == pending.freeze()


def test_frozen_deltas_are_not_changed_by_later_writes_and_views() -> None:
    pending: PendingDeltas[Samples] = PendingDeltas(Samples)
    seen = []
    for number in range(40):
        pending.merge(Samples(cpu=number), 10)
        seen.append([(delta, list(delta.series["cpu"])) for delta in pending.freeze()])
    pending.take()
    for deltas in seen:
        assert all(delta.series["cpu"] == samples for delta, samples in deltas)
