"""Short requests that are walked have the rows that the decoders in bulk give; whatever is out of the ordinary goes to those."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.telemetry.samples import NOW, SOURCE, SPAN, TRACE, first_write, metrics_scope, set_attributes
from tests.telemetry.test_protobuf import mutate

from penstock.errors import InvalidInput
from penstock.records import Signal
from penstock.telemetry import DecodedRows, DecodeLimits, decode_otlp
from penstock.telemetry.columns.few_rows import Uncommon, is_short
from penstock.telemetry.otlp.decode import otlp_rows, request_message
from penstock.telemetry.otlp.short_requests import short_rows
from penstock.telemetry.remote_write.decode import RemoteWriteVersion, decode_write_requests
from penstock.telemetry.remote_write.messages import write_request_v1
from penstock.telemetry.remote_write.short_requests import short_write_rows
from penstock.telemetry.wire.protobuf import parse, to_arrow

LIMITS = DecodeLimits()
MUTATIONS = 400


def plain_metrics() -> Any:
    request, scope = metrics_scope()
    scope.scope.version = "2"
    set_attributes(scope.scope.attributes, part="x")
    total = scope.metrics.add(name="requests", unit="1", description="of all")
    total.sum.aggregation_temporality, total.sum.is_monotonic = 2, True
    point = total.sum.data_points.add(time_unix_nano=NOW, start_time_unix_nano=NOW - 5, as_int=2**62 + 1)
    set_attributes(point.attributes, zone="z", host="h", up=True, core=-7, load=1e20, nothing=None, empty="")
    set_attributes(point.attributes, host="last")
    gauge = scope.metrics.add(name="cpu").gauge
    gauge.data_points.add(as_double=0.5)
    gauge.data_points.add(time_unix_nano=NOW, flags=1)
    times = scope.metrics.add(name="duration", unit="ms").histogram
    times.aggregation_temporality = 1
    point = times.data_points.add(time_unix_nano=NOW, count=6, sum=12.5)
    point.explicit_bounds.extend([1, 2.5])
    point.bucket_counts.extend([1, 2, 3])
    times.data_points.add(time_unix_nano=NOW, count=1, min=0.1, max=9)
    scope.metrics.add(name="nothing")
    other = request.resource_metrics.add().scope_metrics.add().metrics.add(name="other").gauge
    other.data_points.add(time_unix_nano=NOW, as_int=1)
    return request


def plain_logs() -> Any:
    request = request_message(Signal.LOGS)()
    scope = request.resource_logs.add().scope_logs.add()
    record = scope.log_records.add(time_unix_nano=NOW, severity_number=9, severity_text="INFO", flags=1)
    record.trace_id, record.span_id, record.event_name = TRACE, SPAN, "login"
    record.body.string_value = "hello"
    set_attributes(record.attributes, user=42, ok=True)
    scope.log_records.add(observed_time_unix_nano=NOW + 1, trace_id=bytes(16)).body.double_value = 0.1
    scope.log_records.add(dropped_attributes_count=3)
    return request


def plain_spans() -> Any:
    request = request_message(Signal.TRACES)()
    scope = request.resource_spans.add().scope_spans.add()
    span = scope.spans.add(trace_id=TRACE, span_id=SPAN, name="GET", kind=2, parent_span_id=SPAN, trace_state="a=b")
    span.start_time_unix_nano, span.end_time_unix_nano = NOW, NOW + 7
    span.status.code, span.status.message = 2, "no"
    set_attributes(span.attributes, n=3)
    scope.spans.add(trace_id=TRACE, span_id=SPAN, kind=77, start_time_unix_nano=NOW)
    return request


PLAIN = {Signal.METRICS: plain_metrics, Signal.LOGS: plain_logs, Signal.TRACES: plain_spans}


@pytest.mark.parametrize("signal", list(Signal))
def test_a_plain_request_is_walked_and_has_the_rows_of_the_decoder_in_bulk(signal: Signal) -> None:
    body = PLAIN[signal]().SerializeToString()
    message = request_message(signal)
    walked = short_rows(signal, [parse(message, body, "request")] * 2, SOURCE, LIMITS)
    assert walked.batch.equals(bulk(signal, body, body).batch)
    walked.batch.validate(full=True)
    assert decode_otlp(signal, body, SOURCE).batch.equals(bulk(signal, body).batch)


@pytest.mark.slow
@pytest.mark.parametrize("signal", list(Signal))
def test_mutated_requests_have_the_rows_of_the_decoder_in_bulk_or_are_left_to_it(signal: Signal) -> None:
    chance, message, walked = random.Random(11), request_message(signal), 0
    body = PLAIN[signal]().SerializeToString()
    for number in range(MUTATIONS):
        mutated = mutate(body, chance)
        try:
            found = short_rows(signal, [parse(message, mutated, "request")], SOURCE, LIMITS)
        except (Uncommon, InvalidInput):
            continue
        walked += 1
        assert_same(found, bulk(signal, mutated), number)
    assert walked, "no mutation was walked"


def test_mutated_writes_have_the_rows_of_the_decoder_in_bulk_or_are_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    chance, message, walked = random.Random(11), write_request_v1(), 0
    body = plain_write().SerializeToString()
    for number in range(MUTATIONS):
        mutated = mutate(body, chance)
        try:
            found = short_write_rows([parse(message, mutated, "request")], SOURCE, LIMITS)
        except (Uncommon, InvalidInput):
            continue
        walked += 1
        with monkeypatch.context() as patched:
            patched.setattr("penstock.telemetry.remote_write.decode.is_short", lambda *_: False)
            assert_same(found, decode_write_requests([mutated], SOURCE, RemoteWriteVersion.V1), number)
    assert walked, "no mutation was walked"


def plain_write() -> Any:
    series = [({"__name__": "up", "job": "a", "zone": "é"}, [(1, 1.0), (-2, float("inf"))]), ({"__name__": "load"}, [])]
    return first_write([*series, ({"A": "1", "__name__": "x"}, [(0, -0.0)])])


@pytest.mark.parametrize(
    "change",
    [
        lambda scope: scope.metrics.add(name="").gauge.data_points.add(as_int=1),
        lambda scope: scope.metrics.add(name="m").gauge.data_points.add(),
        lambda scope: scope.metrics.add(name="m").sum.data_points.add(as_int=1),
        lambda scope: scope.metrics.add(name="m").gauge.data_points.add(as_int=1, time_unix_nano=2**63),
        lambda scope: scope.metrics.add(name="m").gauge.data_points.add(as_int=1, flags=2**31),
        lambda scope: scope.metrics.add(name="m").summary.data_points.add(count=1),
        lambda scope: scope.metrics.add(name="m").gauge.data_points.add(as_int=1).exemplars.add(as_int=1),
        lambda scope: _bounds(scope, [float("nan")], [1, 2]),
        lambda scope: _bounds(scope, [2, 1], [1, 2, 3]),
        lambda scope: _bounds(scope, [1], [1]),
        lambda scope: _bounds(scope, [1], [1, 2**63]),
    ],
    ids=["name", "value", "temporality", "time", "flags", "kind", "exemplar", "nan", "order", "uneven", "count"],
)
def test_what_is_refused_or_rare_is_left_to_the_decoder_in_bulk(change: Callable[[Any], Any]) -> None:
    request = plain_metrics()
    change(request.resource_metrics[0].scope_metrics[0])
    with pytest.raises(Uncommon):
        short_rows(Signal.METRICS, [request], SOURCE, LIMITS)
    body = request.SerializeToString()
    assert_same(decode_otlp(Signal.METRICS, body, SOURCE), bulk(Signal.METRICS, body), 0)


def _bounds(scope: Any, bounds: list[float], counts: list[int]) -> None:
    histogram = scope.metrics.add(name="m").histogram
    histogram.aggregation_temporality = 2
    histogram.data_points.add(explicit_bounds=bounds, bucket_counts=counts)


def test_a_request_that_could_pass_a_bound_is_not_walked() -> None:
    body = b"x" * 1000
    assert is_short([body], LIMITS)
    assert not is_short([body], DecodeLimits(rows_max=999))
    assert not is_short([body], DecodeLimits(value_bytes_max=999))
    assert not is_short([body] * 100, LIMITS)
    with pytest.raises(Uncommon):
        short_rows(Signal.METRICS, [plain_metrics()], SOURCE, DecodeLimits(attributes_max=2))


def bulk(signal: Signal, *bodies: bytes) -> DecodedRows:
    return otlp_rows(signal, to_arrow(request_message(signal), bodies, "request"), SOURCE, LIMITS)


def assert_same(found: DecodedRows, expected: DecodedRows, number: int) -> None:
    # As texts: what is no number does not equal itself.
    assert repr(found.batch.to_pydict()) == repr(expected.batch.to_pydict()), number
    assert (found.rejected, found.reasons) == (expected.rejected, expected.reasons), number
