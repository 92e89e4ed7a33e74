"""A process whose query is over its bounds is ended, and which bound it was is told."""

from __future__ import annotations

import threading
from pathlib import Path

from penstock.errors import AtCapacity, Closed, DeadlineExceeded, PenstockError
from penstock.lake import ProcessWatch, SqlConfig, resident_bytes
from penstock.testing import ManualClock

CONFIG = SqlConfig(memory_bytes=1000, answer_bytes_max=10)


def test_memory_is_counted_from_what_the_process_holds_at_first() -> None:
    held = [5000]
    watch = ProcessWatch(CONFIG, print, resident=lambda: held[0], clock=ManualClock())
    assert watch.excess() is None
    held[0] = watch.bytes_max
    assert watch.excess() is None
    held[0] += 1
    excess = watch.excess()
    assert isinstance(excess, AtCapacity)
    assert "memory_bytes = 1,000" in str(excess)


def test_time_is_over_a_grace_after_the_query_should_have_ended_by_itself() -> None:
    clock = ManualClock()
    watch = ProcessWatch(CONFIG, print, seconds_max=4.0, resident=lambda: 0, clock=clock)
    clock.advance(4.5)
    assert watch.excess() is None
    clock.advance(1.0)
    excess = watch.excess()
    assert isinstance(excess, DeadlineExceeded)
    assert "longer than 4 s" in str(excess)


def test_a_query_that_was_given_up_has_the_grace_and_no_more() -> None:
    clock = ManualClock()
    watch = ProcessWatch(CONFIG, print, seconds_max=4000.0, resident=lambda: 0, clock=clock)
    watch.hurry()
    assert watch.excess() is None
    clock.advance(1.5)
    assert isinstance(watch.excess(), Closed)


def test_the_process_is_looked_at_while_the_context_is_open() -> None:
    held, told, ended = [0], list[PenstockError](), threading.Event()

    def end(excess: PenstockError) -> None:
        told.append(excess)
        ended.set()

    with ProcessWatch(CONFIG, end, resident=lambda: held[0], clock=ManualClock()) as watch:
        held[0] = watch.bytes_max + 1
        assert ended.wait(60)
    assert [type(one) for one in told] == [AtCapacity]


def test_what_the_process_holds_can_be_read_from_an_open_file() -> None:
    assert resident_bytes() > 1_000_000
    with Path("/proc/self/statm").open("rb", buffering=0) as sizes:
        assert resident_bytes(sizes) > 1_000_000
        assert resident_bytes(sizes) > 1_000_000
