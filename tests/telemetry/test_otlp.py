"""OTLP requests become rows: every kind, every fault, in protobuf and in JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from tests.telemetry.samples import (
    NOW,
    SOURCE,
    every_kind_of_metric,
    metrics_scope,
    set_attributes,
    set_value,
    some_logs,
    some_spans,
)

from penstock.errors import InvalidInput
from penstock.records import Signal
from penstock.telemetry import DecodeLimits, ValueKind, decode_otlp, decode_otlp_json
from penstock.telemetry.columns.schemas import LOGS, METRICS, TRACES


def test_every_kind_of_metric_has_a_row_with_its_own_columns() -> None:
    decoded = decode_otlp(Signal.METRICS, every_kind_of_metric().SerializeToString(), SOURCE)
    assert decoded.batch.schema.equals(METRICS, check_metadata=True)
    assert (decoded.rejected, decoded.batch.num_rows) == (0, 5)
    rows = {row["metric"]: row for row in _rows(decoded.batch)}
    assert rows["cpu.load"]["value"] == 0.5
    assert rows["http.requests"]["int_value"] == 2**62
    assert rows["http.requests"]["monotonic"] is True
    assert rows["http.requests"]["start_time"] == NOW - 5
    assert rows["http.requests"]["exemplars"][0]["trace_id"] == bytes(range(1, 17)).hex()
    assert (rows["http.duration"]["bounds"], rows["http.duration"]["counts"]) == ([1.0, 2.5], [1, 2, 3])
    assert (rows["sizes"]["positive_offset"], rows["sizes"]["positive_counts"]) == (1, [2, 3])
    assert rows["rpc"]["quantiles"] == [{"quantile": 0.99, "value": 7.0}]
    assert {row["tenant"] for row in rows.values()} == {"acme"}


def test_attributes_are_texts_sorted_by_key_with_their_kind_beside_them() -> None:
    decoded = decode_otlp(Signal.METRICS, every_kind_of_metric().SerializeToString(), SOURCE)
    row = _rows(decoded.batch)[0]
    assert row["labels"] == [
        ("core", "0"),
        ("deep", '{"a":{"b":[true,null]}}'),
        ("host", "a"),
        ("raw", "AAE="),
        ("tags", '["x",1]'),
    ]
    kinds = [ValueKind.INT, ValueKind.JSON, ValueKind.STRING, ValueKind.BYTES, ValueKind.JSON]
    assert row["label_types"] == kinds


def test_of_a_key_that_comes_twice_the_last_counts() -> None:
    request, scope = metrics_scope()
    point = scope.metrics.add(name="m").gauge.data_points.add(time_unix_nano=NOW, as_int=1)
    for key, value in (("b", 1), ("a", 2), ("b", 3)):
        set_attributes(point.attributes, **{key: value})
    row = _rows(decode_otlp(Signal.METRICS, request.SerializeToString(), SOURCE).batch)[0]
    assert row["labels"] == [("a", "2"), ("b", "3")]


def test_points_that_cannot_be_kept_are_counted_and_the_others_taken() -> None:
    request, scope = metrics_scope()
    scope.metrics.add(name="good").gauge.data_points.add(time_unix_nano=NOW, as_int=1)
    scope.metrics.add(name="no value").gauge.data_points.add(time_unix_nano=NOW)
    scope.metrics.add(name="late").gauge.data_points.add(time_unix_nano=2**63, as_int=1)
    scope.metrics.add(name="").gauge.data_points.add(time_unix_nano=NOW, as_int=1)
    scope.metrics.add(name="no temporality").sum.data_points.add(time_unix_nano=NOW, as_int=1)
    uneven = scope.metrics.add(name="uneven").histogram
    uneven.aggregation_temporality = 2
    uneven.data_points.add(time_unix_nano=NOW, count=1).bucket_counts.extend([1, 2, 3])
    falling = uneven.data_points.add(time_unix_nano=NOW, count=1)
    falling.bucket_counts.extend([1, 2, 3])
    falling.explicit_bounds.extend([2, 1])
    decoded = decode_otlp(Signal.METRICS, request.SerializeToString(), SOURCE)
    assert decoded.batch.column("metric").to_pylist() == ["good"]
    assert decoded.rejected == 6
    for words in (
        "no value",
        "2262",
        "without a name",
        "neither cumulative nor delta",
        "one bucket more",
        "do not rise",
    ):
        assert words in decoded.message


def test_a_point_without_a_recorded_value_is_kept() -> None:
    request, scope = metrics_scope()
    scope.metrics.add(name="gone").gauge.data_points.add(time_unix_nano=NOW, flags=1)
    row = _rows(decode_otlp(Signal.METRICS, request.SerializeToString(), SOURCE).batch)[0]
    assert (row["value"], row["flags"]) == (None, 1)


def test_a_log_record_without_a_time_has_when_it_was_observed_or_received() -> None:
    decoded = decode_otlp(Signal.LOGS, some_logs().SerializeToString(), SOURCE)
    assert decoded.batch.schema.equals(LOGS)
    rows = _rows(decoded.batch)
    assert [row["time"] for row in rows] == [NOW, NOW + 1, SOURCE.received_ns]
    assert (rows[0]["body"], rows[0]["body_type"]) == ("hello", ValueKind.STRING)
    assert (rows[1]["body"], rows[1]["body_type"]) == ('{"a":[1,{"b":2}]}', ValueKind.JSON)
    assert (rows[2]["body"], rows[2]["body_type"]) == ("", ValueKind.EMPTY)
    assert rows[0]["trace_id"] == bytes(range(1, 17)).hex()
    assert rows[2]["trace_id"] is None


def test_spans_have_their_events_and_links() -> None:
    decoded = decode_otlp(Signal.TRACES, some_spans().SerializeToString(), SOURCE)
    assert decoded.batch.schema.equals(TRACES)
    row = _rows(decoded.batch)[0]
    assert (row["kind"], row["status"], row["duration_ns"]) == ("server", "error", 7)
    assert row["events"][0]["attributes"] == [("n", "3")]
    assert row["links"][0]["span_id"] == bytes(range(1, 9)).hex()


def test_spans_without_the_identities_that_otlp_requires_are_rejected() -> None:
    request = some_spans()
    spans = request.resource_spans[0].scope_spans[0].spans
    spans.add(trace_id=b"short", span_id=b"12345678")
    spans.add(trace_id=bytes(16), span_id=b"12345678")
    spans.add(trace_id=bytes(range(16)), span_id=b"")
    decoded = decode_otlp(Signal.TRACES, request.SerializeToString(), SOURCE)
    assert (decoded.batch.num_rows, decoded.rejected) == (1, 3)


@pytest.mark.parametrize("signal", list(Signal))
def test_json_is_the_same_request(signal: Signal) -> None:
    message = {Signal.METRICS: every_kind_of_metric, Signal.LOGS: some_logs, Signal.TRACES: some_spans}[signal]()
    plain = json_format.MessageToDict(message)
    text = msgspec.json.encode(_hexed(plain))
    expected = decode_otlp(signal, message.SerializeToString(), SOURCE)
    assert decode_otlp_json(signal, text, SOURCE).batch.equals(expected.batch)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not JSON"),
        (b'{"a": "\xa2"}', "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"xyz"}]}]}]}', "hexadecimal"),
        (b'{"resourceSpans":7}', "not OTLP/JSON"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "JSON"),
    ],
)
def test_json_that_is_no_request_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        decode_otlp_json(Signal.TRACES, body, SOURCE)


@pytest.mark.parametrize(
    "record",
    [
        b'{"body":"plain"}',
        b'{"body":["stringValue"]}',
        b'{"body":7}',
        b'{"attributes":"abc"}',
        b'{"attributes":[{"key":"a","value":"b"}]}',
        b'{"attributes":["a"]}',
        b'"a log"',
    ],
)
def test_json_with_a_text_or_a_number_in_the_place_of_an_object_is_refused(record: bytes) -> None:
    """Passed over, it would be a log that has lost its body."""
    with pytest.raises(InvalidInput, match="not OTLP/JSON"):
        decode_otlp_json(Signal.LOGS, b'{"resourceLogs":[{"scopeLogs":[{"log_records":[%b]}]}]}' % record, SOURCE)


def test_json_may_leave_out_what_is_empty_or_null() -> None:
    text = b'{"resourceLogs":[{"resource":null,"scopeLogs":[{"scope":{},"logRecords":[{"body":null,"attributes":null}]}]}]}'
    assert decode_otlp_json(Signal.LOGS, text, SOURCE).batch.num_rows == 1


def test_members_that_json_has_too_many_are_passed_over() -> None:
    assert decode_otlp_json(Signal.LOGS, b'{"new":1,"resourceLogs":[]}', SOURCE).batch.num_rows == 0


@pytest.mark.parametrize("body", [b"\xff", b"\x0a\x05abc", b"\x0a" * 10])
def test_bytes_that_are_no_protobuf_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput, match="not a valid protobuf"):
        decode_otlp(Signal.METRICS, body, SOURCE)


def test_an_empty_request_has_no_rows() -> None:
    for signal in Signal:
        assert decode_otlp(signal, b"", SOURCE).batch.num_rows == 0


def test_values_nested_beyond_the_depth_are_refused_and_within_it_kept() -> None:
    def request(depth: int) -> bytes:
        value: object = 1
        for _ in range(depth):
            value = [value]
        message = some_logs()
        set_value(message.resource_logs[0].scope_logs[0].log_records[2].body, value)
        encoded: bytes = message.SerializeToString()
        return encoded

    body = decode_otlp(Signal.LOGS, request(16), SOURCE).batch.column("body")[2].as_py()
    assert body == "[" * 16 + "1" + "]" * 16
    with pytest.raises(InvalidInput, match="nested"):
        decode_otlp(Signal.LOGS, request(18), SOURCE)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (DecodeLimits(request_bytes_max=10), "bytes"),
        (DecodeLimits(rows_max=2), "rows"),
        (DecodeLimits(attributes_max=3), "attributes"),
        (DecodeLimits(value_bytes_max=4), "attribute"),
    ],
)
def test_a_request_over_a_bound_is_refused_whole(limits: DecodeLimits, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        decode_otlp(Signal.METRICS, every_kind_of_metric().SerializeToString(), SOURCE, limits)


def test_many_resources_keep_their_own_attributes() -> None:
    request = ExportMetricsServiceRequest()
    for number in range(50):
        resource = request.resource_metrics.add()
        set_attributes(resource.resource.attributes, host=f"h{number}")
        for name in range(3):
            metric = resource.scope_metrics.add().metrics.add(name=f"m{name}")
            metric.gauge.data_points.add(time_unix_nano=NOW, as_int=number)
    batch = decode_otlp(Signal.METRICS, request.SerializeToString(), SOURCE).batch
    assert batch.num_rows == 150
    for row in _rows(batch):
        assert row["resource"] == [("host", f"h{row['int_value']}")]


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Times as numbers: what Python has for them holds microseconds only."""
    from penstock.telemetry.otlp.encode import _rows as rows

    return list(rows(batch))


def _hexed(node: object) -> object:
    """Protobuf's JSON as OTLP has it: identities in hexadecimal."""
    import base64

    if isinstance(node, list):
        return [_hexed(one) for one in node]
    if isinstance(node, dict):
        return {
            key: base64.b64decode(value).hex() if key in ("traceId", "spanId", "parentSpanId") else _hexed(value)
            for key, value in node.items()
        }
    return node
