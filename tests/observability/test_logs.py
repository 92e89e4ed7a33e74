"""A log line is one line that a person or a machine can read, at the level that was asked for."""

from __future__ import annotations

import io
import json

from opentelemetry.sdk.trace import TracerProvider

from penstock.observability import LiveObserver, Span, names
from penstock.observability.logs import open_log


def test_a_json_line_carries_its_name_level_time_fields_and_trace() -> None:
    stream = io.StringIO()
    observer = LiveObserver(tracer=TracerProvider().get_tracer("test"), log=open_log(stream, form="json", level="info"))
    with observer.span(Span("test.work", "Work.")):
        observer.event(names.INDEXING_DONE, tenantId="t", docId="d", seq=3, batchId=None)
        trace = (observer.traceparent() or "").split("-")[1]
    line = json.loads(stream.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "indexing.done",
        "level": "info",
        "tenantId": "t",
        "docId": "d",
        "seq": 3,
        "traceId": trace,
    }


def test_lines_below_the_level_are_left_out() -> None:
    stream = io.StringIO()
    observer = LiveObserver(log=open_log(stream, form="text", level="warning"))
    observer.event(names.INDEXING_DONE, docId="d")
    observer.event(names.INDEXING_SET_ASIDE, docId="e")
    assert stream.getvalue().count("\n") == 1
    assert "docId=e" in stream.getvalue()


def test_whatever_a_name_holds_a_line_stays_one_line() -> None:
    for form in ("json", "text"):
        stream = io.StringIO()
        observer = LiveObserver(log=open_log(stream, form=form, level="info"))
        observer.event(names.INDEXING_DONE, object="a\nb\x1b[31m\udcff")
        assert stream.getvalue().count("\n") == 1
        assert "\x1b[31m" not in stream.getvalue()
