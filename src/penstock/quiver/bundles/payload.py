"""Bundles as the payload of one frame of the log, and back: without a copy on the way back. Pure; docs/format/wal.md."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.errors import Corrupt, InvalidInput
from penstock.quiver.bundles.bundle import Bundle
from penstock.quiver.bundles.schemas import KnownSchema, known_schema, read_schema
from penstock.quiver.bundles.shared import BundleColumns, SharedBatches
from penstock.quiver.log.batch_parts import BatchPart
from penstock.undecodable import UNDECODABLE

__all__ = ["decode_bundles", "decode_call", "encode_bundles"]

_ALIGNMENT: Final = 8
_LENGTH: Final = struct.Struct("<I")
# The length field of a frame has 32 bits.
_PAYLOAD_BYTES_MAX: Final = (1 << 32) - 1
# A batch of up to so many bytes is written on the spot: to ask first how many that takes costs as much again.
_COPIED_BYTES_MAX: Final = 16 << 10


class _Slot(msgspec.Struct, array_like=True, frozen=True):
    name: str
    # Which of the frame's schemas; below zero, the body is a whole Arrow stream with its dictionaries.
    schema: int
    offset: int
    length: int
    # The rows of this bundle in a body that several share; below zero, all of them.
    start: int = 0
    rows: int = -1


class _Entry(msgspec.Struct, array_like=True, frozen=True):
    signal: str
    identity: str
    event_time_ns: tuple[int, int] | None
    slots: list[_Slot]


class _Run(msgspec.Struct, array_like=True, frozen=True):
    """Bundles of one signal that have one slot, all in one body: one behind the other, with so many rows each."""

    signal: str
    # One for each bundle; none where all are empty, or nobody knows the times.
    identities: Sequence[str]
    event_times_ns: Sequence[tuple[int, int] | None]
    slot: _Slot
    rows: Sequence[int]


class _Head(msgspec.Struct, array_like=True, frozen=True):
    ingestion_ms: int
    schemas: list[tuple[int, int]]
    bundles: list[_Entry]
    # Behind `bundles`.
    runs: list[_Run] = []


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Head)


def encode_bundles(bundles: Sequence[Bundle], ingestion_ms: int, shared: SharedBatches | None = None) -> list[Any]:
    """The payload as a list of buffers to be laid one behind the other. `shared` are the bundles' own, if there are any.

    ```
    u32 length of the head, head (msgpack), zeros to 8 bytes, then bodies, each at a multiple of 8
    ```
    """
    bodies = _Bodies()
    entries: list[_Entry] = []
    runs: list[_Run] = []
    if shared is None and len(bundles) > 1:
        shared = SharedBatches.of(bundles)
    columns = None if shared is None else shared.columns
    if shared is not None and columns is not None and columns.signals.count(bundles[0].signal) == len(bundles):
        runs = [_run(columns, shared, bodies)]
    else:
        entries = _entries(bundles, shared, bodies)
    head = _ENCODER.encode(_Head(ingestion_ms, bodies.schemas, entries, runs))
    prefix = _LENGTH.pack(len(head)) + head
    parts = [prefix + bytes(-len(prefix) % _ALIGNMENT), *bodies.parts]
    if (size := sum([len(part) for part in parts])) > _PAYLOAD_BYTES_MAX:
        raise InvalidInput(
            f"bundles of {size} bytes were sent together", f"a record of the log has {_PAYLOAD_BYTES_MAX}", "send fewer"
        )
    return parts


def _run(columns: BundleColumns, shared: SharedBatches, bodies: _Bodies) -> _Run:
    """All bundles have rows of one body: nothing is made for each of them but a number."""
    assert shared.single is not None
    name, schema = shared.single
    return _Run(
        columns.signals[0],
        columns.identities if any(columns.identities) else [],
        columns.event_times_ns if any(columns.event_times_ns) else [],
        bodies.slot(name, shared.whole[name, schema.body], schema),
        columns.rows,
    )


def _entries(bundles: Sequence[Bundle], shared: SharedBatches | None, bodies: _Bodies) -> list[_Entry]:
    rows = None if shared is None else _SharedRows(shared)
    return [
        _Entry(
            bundle.signal,
            bundle.identity,
            bundle.event_time_ns,
            [
                (rows and rows.slot(name, batch, schema, bodies)) or bodies.slot(name, batch, schema, size)
                for (name, batch), schema, size in zip(bundle.slots.items(), bundle.schemas, bundle.sizes, strict=True)
            ],
        )
        for bundle in bundles
    ]


class _SharedRows:
    """Which rows of the batches that are put together are whose."""

    def __init__(self, shared: SharedBatches) -> None:
        self._whole = shared.whole
        self._slots: dict[tuple[str, bytes], _Slot] = {}
        self._rows: dict[tuple[str, bytes], int] = {}

    def slot(self, name: str, batch: pa.RecordBatch, schema: KnownSchema, bodies: _Bodies) -> _Slot | None:
        """The rows of this batch in the shared body; None where there is none."""
        key = name, schema.body
        whole = self._whole.get(key)
        if whole is None:
            return None
        laid = self._slots.get(key)
        if laid is None:
            laid = self._slots[key] = bodies.slot(name, whole, schema)
        start = self._rows.get(key, 0)
        self._rows[key] = start + batch.num_rows
        return _Slot(name, laid.schema, laid.offset, laid.length, start, batch.num_rows)


class _Bodies:
    """Bodies of one frame; a schema that several batches share is written once."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.schemas: list[tuple[int, int]] = []
        self._numbers: dict[bytes, int] = {}
        self._end = 0

    def slot(self, name: str, batch: pa.RecordBatch, schema: KnownSchema, size: int = _COPIED_BYTES_MAX + 1) -> _Slot:
        """`size` is that of the batch, where it is known."""
        if schema.has_dictionaries:
            return _Slot(name, -1, *self._put(memoryview(_stream(batch)).cast("B")))
        number = self._numbers.get(schema.body)
        if number is None:
            number = self._numbers[schema.body] = len(self.schemas)
            self.schemas.append(self._put(schema.body))
        if size <= _COPIED_BYTES_MAX:
            return _Slot(name, number, *self._put(batch.serialize().to_pybytes()))
        return _Slot(name, number, *self._put(BatchPart(batch, schema.body)))

    def _put(self, body: BatchPart | bytes | memoryview) -> tuple[int, int]:
        offset, size = self._end, len(body)
        self.parts.append(body)
        gap = -size % _ALIGNMENT
        if gap:
            self.parts.append(bytes(gap))
        self._end += size + gap
        return offset, size


def decode_bundles(payload: memoryview) -> tuple[int, list[Bundle]]:
    """Ingestion time and bundles, as views into `payload`. The frame's checksum was good: a fault here is a bug's."""
    ingestion_ms, bundles, _ = decode_call(payload)
    return ingestion_ms, bundles


def decode_call(payload: memoryview) -> tuple[int, list[Bundle], SharedBatches]:
    """The same, and the batches that bundles share: a segment that is made anew has the batches of the first one."""
    shared = SharedBatches()
    try:
        (length,) = _LENGTH.unpack_from(payload)
        head = _DECODER.decode(payload[_LENGTH.size : _LENGTH.size + length])
        start = _LENGTH.size + length
        bodies = payload[start + -start % _ALIGNMENT :]
        schemas = [read_schema(bytes(bodies[at : at + size])) for at, size in head.schemas]
        found = [_bundle(entry, schemas, bodies, shared) for entry in head.bundles]
        for run in head.runs:
            found += _run_bundles(run, schemas, bodies, shared)
        return head.ingestion_ms, found, shared
    except (
        *UNDECODABLE,
        struct.error,
        pa.ArrowException,
        ValueError,
        LookupError,
        TypeError,
        OSError,
    ) as error:
        # Arrow reports some of what it cannot read as an OSError, and text that is none is a ValueError.
        raise Corrupt("a frame of the log holds no bundles", str(error)) from error


def _bundle(entry: _Entry, schemas: list[pa.Schema], bodies: memoryview, shared: SharedBatches) -> Bundle:
    slots = {}
    for slot in entry.slots:
        batch = _batch(slot, schemas, bodies)
        if slot.rows >= 0:
            shared.whole[slot.name, known_schema(batch.schema).body] = batch
            batch = batch.slice(slot.start, slot.rows)
        slots[slot.name] = batch
    return Bundle(slots, entry.signal, entry.identity, entry.event_time_ns)


def _run_bundles(run: _Run, schemas: list[pa.Schema], bodies: memoryview, shared: SharedBatches) -> list[Bundle]:
    whole = _batch(run.slot, schemas, bodies)
    if min(run.rows) < 0 or sum(run.rows) != whole.num_rows:
        raise ValueError(f"{whole.num_rows} rows are shared as {run.rows}")
    schema = known_schema(whole.schema)
    shared.whole[run.slot.name, schema.body] = whole
    shared.single = run.slot.name, schema
    empty = [""] * len(run.rows)
    identities = run.identities or empty
    times: Sequence[tuple[int, int] | None] = run.event_times_ns or [None] * len(run.rows)
    starts = accumulate(run.rows, initial=0)
    bundles = [
        Bundle({run.slot.name: whole.slice(start, rows)}, run.signal, identity, time)
        for start, rows, identity, time in zip(starts, run.rows, identities, times, strict=False)
    ]
    shared.columns = BundleColumns.of(bundles)
    return bundles


def _batch(slot: _Slot, schemas: list[pa.Schema], bodies: memoryview) -> pa.RecordBatch:
    body = pa.py_buffer(bodies[slot.offset : slot.offset + slot.length])
    if slot.schema < 0:
        return pa.ipc.open_stream(body).read_next_batch()
    return pa.ipc.read_record_batch(body, schemas[slot.schema])


def _stream(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
