"""Batches of telemetry in the queue: encoded, decoded, refused when they are not what they say."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.telemetry.samples import SOURCE, every_kind_of_metric, some_logs

from penstock.errors import Corrupt, InvalidInput, Unsupported
from penstock.records import ArrowEnvelope, Signal, TelemetryEnvelope, VectorEnvelope, VectorOperation
from penstock.relay import decode_part
from penstock.telemetry import decode_otlp, decode_records, encode_arrow, encode_records

TABLE = pa.table({"tenant": ["t"], "a": [1]})


def test_tables_come_back_under_their_names() -> None:
    logs = decode_otlp(Signal.LOGS, some_logs().SerializeToString(), SOURCE).batch
    records, envelope = encode_records({"logs": logs, "mine": TABLE})
    found = decode_records(records, envelope, 0)
    assert found["mine"][0].equals(TABLE)
    assert found["logs"][0].to_batches()[0].equals(logs)
    assert ArrowEnvelope.decode(envelope).signal is None


def test_one_signal_is_named_by_the_envelope() -> None:
    logs = decode_otlp(Signal.LOGS, some_logs().SerializeToString(), SOURCE).batch
    assert ArrowEnvelope.decode(encode_records({"logs": logs})[1]).signal is Signal.LOGS


def test_what_is_written_here_is_what_a_relay_writes() -> None:
    records, _ = encode_records({"mine": TABLE})
    assert decode_part(records)["mine"][0].equals(TABLE)


def test_requests_of_otlp_are_read_as_they_came() -> None:
    request = every_kind_of_metric().SerializeToString()
    found = decode_records([request, request], TelemetryEnvelope(Signal.METRICS).encode(), 5)
    assert sum(table.num_rows for table in found["metrics"]) == 10
    slot = encode_arrow(pa.table({"request": pa.array([request], pa.binary())}), {b"penstock.slot": b"otlp_metrics"})
    found = decode_records([slot], ArrowEnvelope(Signal.METRICS).encode(), 5)
    assert found["metrics"][0].num_rows == 5


@pytest.mark.parametrize(
    "record", [b"", b"junk", encode_arrow(TABLE), encode_arrow(TABLE, {b"penstock.slot": b"otlp_logs"})]
)
def test_records_that_are_not_what_the_envelope_says_are_corrupt(record: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_records([record], ArrowEnvelope(None).encode(), 0)


def test_an_envelope_of_something_else_is_not_supported() -> None:
    with pytest.raises((Unsupported, Corrupt)):
        decode_records([b""], VectorEnvelope(VectorOperation.UPSERT).encode(), 0)


def test_nothing_to_send_is_refused() -> None:
    with pytest.raises(InvalidInput):
        encode_records({})
