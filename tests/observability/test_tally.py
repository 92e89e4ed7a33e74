"""What a worker counted reaches whoever drives it: every figure, line and span, once."""

from __future__ import annotations

from penstock.observability import Tally, names, recount
from penstock.testing import ManualClock, RecordingObserver

PARENT = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"


def test_figures_of_a_worker_are_counted_by_the_driver_as_if_they_were_its_own() -> None:
    tally, driver = Tally(clock=ManualClock()), RecordingObserver()
    tally.count(names.OBJECTS_REQUESTS, verb="get", outcome="ok")
    tally.count(names.OBJECTS_REQUESTS, 2, verb="get", outcome="ok")
    tally.count(names.OBJECTS_REQUESTS, verb="put", outcome="ok")
    tally.gauge(names.BUFFER_LAG_BATCHES, 3)
    tally.gauge(names.BUFFER_LAG_BATCHES, 7)
    tally.observe(names.INDEXING_READ_SECONDS, 0.5)
    tally.observe(names.INDEXING_READ_SECONDS, 0.25)
    tally.event(names.INDEXING_BATCHED, batchId="b")
    figures = tally.taken()
    assert figures is not None
    recount(figures, driver)
    assert driver.counted(names.OBJECTS_REQUESTS, verb="get") == 3
    assert driver.counted(names.OBJECTS_REQUESTS) == 4
    assert driver.gauged(names.BUFFER_LAG_BATCHES) == 7
    assert driver.observed(names.INDEXING_READ_SECONDS) == [0.5, 0.25]
    assert driver.events(names.INDEXING_BATCHED) == [{"batchId": "b"}]


def test_what_was_taken_is_not_taken_again() -> None:
    tally = Tally()
    assert tally.taken() is None
    tally.count(names.INDEXING_READ_BYTES, 9)
    assert tally.taken() is not None
    assert tally.taken() is None


def test_a_span_of_a_worker_keeps_its_trace_and_its_length() -> None:
    clock, told = ManualClock(), []

    class Driver(RecordingObserver):
        def past_span(self, span, began_ms, ended_ms, **given):  # type: ignore[no-untyped-def]
            told.append((span, ended_ms - began_ms, given))

    tally = Tally(clock=clock)
    with tally.span(names.INDEXING_READ, parent=PARENT, docId="d"):
        clock.advance(1.5)
    recount(tally.taken() or b"", Driver())
    assert told == [(names.INDEXING_READ, 1500.0, {"parent": PARENT, "links": [], "docId": "d"})]


def test_a_worker_that_never_hands_over_holds_a_bounded_number_of_lines() -> None:
    tally, driver = Tally(), RecordingObserver()
    for _ in range(5000):
        tally.event(names.INDEXING_BATCHED)
        tally.past_span(names.INDEXING_READ, 0, 1)
    recount(tally.taken() or b"", driver)
    assert len(driver.events(names.INDEXING_BATCHED)) == len(driver.spans(names.INDEXING_READ)) == 4096
