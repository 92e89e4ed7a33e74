from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import InvalidInput
from penstock.observability import Event, Kind, Metric, Span
from penstock.testing import RecordingObserver

CALLS = Metric("calls_total", Kind.COUNTER, "Calls.", ("verb", "outcome"))
DEPTH = Metric("depth", Kind.GAUGE, "Depth.", ("queue",))
SECONDS = Metric("seconds", Kind.HISTOGRAM, "Seconds.", ("verb",), (1.0,))
STARTED = Event("started", "info", "Started.")


def test_counts_add_up_over_every_series_with_the_labels_asked_for() -> None:
    observer = RecordingObserver()
    observer.count(CALLS, verb="get", outcome="ok")
    observer.count(CALLS, 2, verb="get", outcome="error")
    observer.count(CALLS, 4, verb="put", outcome="ok")
    assert observer.counted(CALLS) == 7
    assert observer.counted(CALLS, verb="get") == 3
    assert observer.counted(CALLS, verb="put", outcome="error") == 0


def test_a_gauge_answers_with_what_was_set_last() -> None:
    observer = RecordingObserver()
    assert observer.gauged(DEPTH) is None
    for queue, depth in [("a", 1), ("b", 2), ("a", 3)]:
        observer.gauge(DEPTH, depth, queue=queue)
    assert observer.gauged(DEPTH) == 3
    assert observer.gauged(DEPTH, queue="b") == 2


def test_observations_are_kept_one_by_one_in_order() -> None:
    observer = RecordingObserver()
    for verb, seconds in [("get", 0.5), ("put", 3.0), ("get", 0.25)]:
        observer.observe(SECONDS, seconds, verb=verb)
    assert observer.observed(SECONDS) == [0.5, 3.0, 0.25]
    assert observer.observed(SECONDS, verb="get") == [0.5, 0.25]


def test_events_and_spans_keep_their_fields() -> None:
    observer, span = RecordingObserver(), Span("work", "Work.")
    with observer.span(span, size=3):
        observer.event(STARTED, room="objects")
    assert observer.events(STARTED) == [{"room": "objects"}]
    assert observer.spans(span) == [{"size": 3}]


def test_an_error_leaves_a_span_as_it_came() -> None:
    with pytest.raises(KeyError), RecordingObserver().span(Span("work", "Work.")):
        raise KeyError("lost")


@pytest.mark.parametrize("labels", [{}, {"verb": "get"}, {"verb": "get", "outcome": "ok", "extra": "1"}])
def test_labels_other_than_those_of_the_table_are_refused_as_prometheus_would(labels: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="calls_total"):
        RecordingObserver().count(CALLS, **labels)
