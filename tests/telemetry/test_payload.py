"""Batches of telemetry in the queue: encoded, decoded, refused when they are not what they say."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.telemetry.samples import SOURCE, every_kind_of_metric, first_write, some_logs

from penstock.errors import Corrupt, InvalidInput, Unsupported
from penstock.records import ArrowEnvelope, Signal, TelemetryEnvelope, VectorEnvelope, VectorOperation
from penstock.relay import decode_part
from penstock.telemetry import (
    RemoteWriteVersion,
    decode_otlp,
    decode_records,
    decode_write_requests,
    encode_arrow,
    encode_records,
    narrowed,
    whole_table,
)

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
    with pytest.raises(InvalidInput, match="no name"):
        encode_records({"": pa.table({"n": [1]})})


@pytest.mark.parametrize("packing", ["zstd", None])
def test_columns_that_hold_nothing_are_left_out_and_put_back(packing: Any) -> None:
    batch = decode_otlp(Signal.METRICS, every_kind_of_metric().SerializeToString(), SOURCE).batch
    table = pa.Table.from_batches([batch]).replace_schema_metadata({"penstock.slot": "metrics"})
    # A column has to be empty in all batches of a stream.
    table = pa.concat_tables([table.slice(0, 2), table.slice(2)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=packing)) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    (narrow,) = decode_records([body], ArrowEnvelope(Signal.METRICS).encode(), 0, leaves_out_empty=True)["metrics"]
    empty = {name for name in table.schema.names if table.column(name).null_count == table.num_rows}
    assert empty
    assert set(narrow.schema.names) == set(table.schema.names) - empty
    whole = whole_table(narrow, "metrics")
    assert whole.equals(table)
    assert whole.schema.names == table.schema.names


def test_columns_of_your_own_tables_are_kept_also_when_they_hold_nothing() -> None:
    records, envelope = encode_records({"mine": pa.table({"a": [1, 2], "b": pa.nulls(2, pa.float64())})})
    (found,) = decode_records(records, envelope, 0, leaves_out_empty=True)["mine"]
    assert found.schema.names == ["a", "b"]
    assert whole_table(found, "mine") is found


def _metrics(*kinds: str) -> pa.RecordBatch:
    batch = decode_otlp(Signal.METRICS, every_kind_of_metric().SerializeToString(), SOURCE).batch
    without_exemplars = batch.set_column(
        batch.schema.get_field_index("exemplars"), "exemplars", pa.nulls(batch.num_rows, batch.column("exemplars").type)
    )
    rows = pa.Table.from_batches([without_exemplars])
    chosen = rows.filter(pc.is_in(rows.column("type"), value_set=pa.array(kinds)))
    return pa.RecordBatch.from_arrays(chosen.combine_chunks().to_batches()[0].columns, schema=batch.schema)


def test_samples_and_numbers_are_stored_without_the_columns_of_histograms_and_come_back_whole() -> None:
    series = [({"__name__": "up", "job": "a"}, [(1, 1.0)])]
    samples = decode_write_requests([first_write(series).SerializeToString()], SOURCE, RemoteWriteVersion.V1).batch
    widths = []
    for batch in (samples, _metrics("gauge", "sum")):
        narrow = narrowed(batch, "metrics")
        widths.append(narrow.num_columns)
        records, envelope = encode_records({"metrics": narrow})
        (found,) = decode_records(records, envelope, 0)["metrics"]
        assert found.schema.equals(batch.schema)
        assert found.to_batches()[0].equals(batch)
    assert widths == [7, 21]


def test_rows_with_a_value_in_any_other_column_are_stored_whole() -> None:
    """So there are three sets of columns, whatever a sender does."""
    for batch in (_metrics("histogram"), _metrics("gauge", "summary")):
        assert narrowed(batch, "metrics") is batch
    logs = decode_otlp(Signal.LOGS, some_logs().SerializeToString(), SOURCE).batch
    assert narrowed(logs, "logs") is logs
    mine = pa.record_batch({"tenant": ["t"], "a": pa.nulls(1, pa.int64())})
    assert narrowed(mine, "mine") is mine
    assert narrowed(mine, "metrics") is mine


def test_a_header_that_does_not_fit_its_schema_is_damage() -> None:
    table = pa.table({"time": pa.array([1], pa.timestamp("ns", tz="UTC")), "unit": pa.nulls(1, pa.string())})
    records, envelope = encode_records({"metrics": table})
    chance = random.Random(1)
    for _ in range(2000):
        damaged = bytearray(records[0])
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        with suppress(Corrupt, Unsupported):
            decode_records([bytes(damaged)], envelope, 0, leaves_out_empty=True)
