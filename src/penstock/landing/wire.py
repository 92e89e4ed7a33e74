"""A task's answer as bytes: file descriptions as msgpack, samples as Arrow columns. For answers that cross processes."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from penstock.landing.port import LandedFile, LandingAnswer, LandingSamples, LostBatch
from penstock.telemetry import MetricDescription

__all__ = ["decode_answer", "encode_answer"]


class _Wire(msgspec.Struct, array_like=True):
    part: int
    files: list[LandedFile]
    lost: list[LostBatch]
    tables: list[tuple[str, str, dict[str, str]]]
    quarantined: dict[str, int]
    refused: dict[str, int]
    rows: int
    # Of each tenant: its name, two Arrow streams, of series and of samples, and what its metrics are.
    samples: list[tuple[str, bytes, bytes, dict[str, MetricDescription]]]


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Wire)


def encode_answer(answer: LandingAnswer) -> bytes:
    """The labels of a series once, however many samples it has."""
    tables = [(tenant, table, columns) for (tenant, table), columns in answer.tables.items()]
    samples = [
        (
            one.tenant,
            _stream({"labels": one.labels}),
            _stream({"series": one.series, "time_ms": one.time_ms, "value": one.value, "is_delta": one.is_delta}),
            dict(one.about),
        )
        for one in answer.samples
    ]
    return _ENCODER.encode(
        _Wire(answer.part, answer.files, answer.lost, tables, answer.quarantined, answer.refused, answer.rows, samples)
    )


def decode_answer(body: bytes) -> LandingAnswer:
    wire = _DECODER.decode(body)
    samples = []
    for tenant, labels, columns, about in wire.samples:
        table = _table(columns)
        series, time_ms, value = (table.column(name).to_numpy() for name in ("series", "time_ms", "value"))
        samples.append(
            LandingSamples(
                tenant,
                _table(labels).column("labels").combine_chunks(),
                np.asarray(series, np.uint32),
                np.asarray(time_ms, np.int64),
                np.asarray(value, np.float64),
                np.asarray(table.column("is_delta").to_numpy(), np.bool_),
                about,
            )
        )
    tables = {(tenant, table): columns for tenant, table, columns in wire.tables}
    return LandingAnswer(wire.part, wire.files, samples, wire.lost, tables, wire.quarantined, wire.refused, wire.rows)


def _stream(columns: dict[str, Any]) -> bytes:
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _table(body: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        return reader.read_all()
