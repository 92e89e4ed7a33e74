from __future__ import annotations

from penstock.coordinator import CoordinatorConfig
from penstock.coordinator.patience import FlushPatience


def test_the_deadline_runs_from_the_first_error() -> None:
    patience = FlushPatience(CoordinatorConfig(retry_deadline_seconds=10))
    assert [patience.count(now) for now in (100, 109.9, 110)] == [True, True, False]


def test_progress_begins_a_new_deadline() -> None:
    patience = FlushPatience(CoordinatorConfig(retry_deadline_seconds=10))
    patience.count(100)
    patience.reset()
    assert patience.count(200)


def test_a_very_long_outage_does_not_overflow_the_pause() -> None:
    patience = FlushPatience(CoordinatorConfig(retry_pause_seconds=0.1, retry_pause_seconds_max=5))
    for now in range(5000):
        patience.count(now)
    assert patience.pause_seconds_max == 5
