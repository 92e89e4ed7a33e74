"""Blocks that hold an Arrow stream have the very bytes of Arrow's own stream writer, whatever their columns."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from penstock.vector.format.arrow_stream import stream_parts

_TEXTS = pa.array(["a", None, "größe", ""])


def written_by_arrow(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    "values",
    [
        _TEXTS,
        _TEXTS[1:3],
        _TEXTS[:0],
        pa.array([1, -2, None]),
        pa.array([0.5]),
        pa.array([True, None, False] * 5),
        pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        pa.array([["x", "y"], [], None]),
        pa.array(range(70_000), pa.uint32()),
    ],
    ids=["texts", "a slice", "no rows", "integers", "one float", "booleans", "times", "lists", "many rows"],
)
def test_a_stream_of_one_batch_is_what_arrow_writes(values: pa.Array) -> None:
    batch = pa.record_batch([pa.array(range(len(values)), pa.int64()), values], names=["id", "value"])
    assert b"".join(stream_parts(batch)) == written_by_arrow(batch)
    assert pa.ipc.open_stream(b"".join(stream_parts(batch))).read_all().to_batches() in ([batch], [])
