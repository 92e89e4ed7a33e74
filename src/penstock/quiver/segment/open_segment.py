"""The open segment: bundles in memory, sorted into streams, until they become a file. Pure.

A stream is what one Arrow file can hold: the batches of one slot that have one schema.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.quiver.bundles.bundle import Bundle
from penstock.quiver.bundles.schemas import KnownSchema
from penstock.quiver.bundles.shared import SHARED_BYTES_MAX, BundleColumns, SharedBatches, combined

__all__ = ["TICK_NS", "OpenSegment"]

_KEPT_RATIO_MAX: Final = 2
_LOOSE_BATCHES_MAX: Final = 128
_TIME_MAX: Final = (1 << 63) - 1
# Nanoseconds of a timestamp's units.
TICK_NS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


@dataclass(slots=True)
class OpenSegment:
    opened_at: float
    # When its last bundle came, on the clock that nobody sets.
    added_at: float = 0.0
    event_time_column: str = ""
    bundles: int = 0
    first_bundle: int = 0
    last_bundle: int = 0
    rows: int = 0
    bytes: int = 0
    ingestion_ms: tuple[int, int] | None = None
    event_time_ns: tuple[int, int] | None = None
    signals: set[str] = field(default_factory=set)
    streams: dict[tuple[str, str], list[pa.RecordBatch]] = field(default_factory=dict)
    # Of each stream: its schemas by their bytes, metadata included.
    _schemas: dict[tuple[str, str], dict[builtins.bytes, pa.Schema]] = field(default_factory=dict)
    # Of each stream: where the batches begin that are not put together yet.
    _loose: dict[tuple[str, str], int] = field(default_factory=dict)

    def add(
        self, bundles: Sequence[Bundle], bundle_seq: int, ingestion_ms: int, shared: SharedBatches | None = None
    ) -> None:
        """Take bundles that follow the last one; the first of them has this number. `shared` is made if need be."""
        if not bundles:
            return
        if not self.bundles:
            self.first_bundle = bundle_seq
        self.last_bundle = bundle_seq + len(bundles) - 1
        self.bundles += len(bundles)
        self.ingestion_ms = _spanning(self.ingestion_ms, (ingestion_ms, ingestion_ms))
        if len(bundles) == 1:
            self._add_one(bundles[0])
        else:
            self._add_many(bundles, shared or SharedBatches.of(bundles))

    def _add_one(self, bundle: Bundle) -> None:
        self.rows += bundle.rows
        self.bytes += bundle.nbytes
        self.signals.add(bundle.signal)
        if bundle.event_time_ns is not None or self.event_time_column:
            self.event_time_ns = _spanning(self.event_time_ns, self._event_time(bundle))
        for (slot, batch), schema, size in zip(bundle.slots.items(), bundle.schemas, bundle.sizes, strict=True):
            self._extend(slot, schema, batch.schema, [_owned(batch, schema, size)] if batch.num_rows else [])

    def _add_many(self, bundles: Sequence[Bundle], shared: SharedBatches) -> None:
        columns = shared.columns or BundleColumns.of(bundles)
        self.rows += sum(columns.rows)
        self.bytes += columns.bytes
        self.signals.update(columns.signals)
        if self.event_time_column or any(columns.event_times_ns):
            for bundle in bundles:
                self.event_time_ns = _spanning(self.event_time_ns, self._event_time(bundle))
        if shared.single is not None:
            name, only = shared.single
            whole = shared.whole[name, only.body]
            self._extend(name, only, whole.schema, [whole])
            return
        for (slot, _), found in _by_stream(bundles).items():
            together = shared.whole.get((slot, found.schema.body))
            self._extend(
                slot,
                found.schema,
                found.arrow_schema,
                found.batches if together is None else [together],
            )

    def _extend(self, slot: str, schema: KnownSchema, arrow_schema: pa.Schema, batches: list[pa.RecordBatch]) -> None:
        """Batches with rows; without any only the schema is kept."""
        key = slot, schema.fingerprint
        stream = self.streams.setdefault(key, [])
        stream += batches
        start = self._loose.get(key, 0)
        if len(stream) - start >= _LOOSE_BATCHES_MAX:
            self._loose[key] = _put_together(stream, start)
        known = self._schemas.setdefault(key, {})
        if schema.body not in known:
            known[schema.body] = arrow_schema

    def table(self, slot: str, schema_fingerprint: str) -> pa.Table:
        """All batches of a stream."""
        batches, schemas = self.streams[slot, schema_fingerprint], self._schemas[slot, schema_fingerprint]
        first = next(iter(schemas.values()))
        if len(schemas) > 1:
            # Equal fields with other metadata are one stream: the first one's stands for all.
            batches = [pa.RecordBatch.from_arrays(batch.columns, schema=first) for batch in batches]
        return pa.Table.from_batches(batches, first)

    def _event_time(self, bundle: Bundle) -> tuple[int, int] | None:
        if bundle.event_time_ns is not None or not self.event_time_column:
            return bundle.event_time_ns
        found = None
        for batch in bundle.slots.values():
            at = batch.schema.get_field_index(self.event_time_column)
            if at >= 0 and pa.types.is_timestamp(batch.schema.field(at).type):
                found = _spanning(found, _column_range(batch.column(at)))
        return found


def _column_range(column: pa.Array[Any]) -> tuple[int, int] | None:
    """In nanoseconds, whatever the unit; a time that 64 bits do not reach counts as the last that they do."""
    ends = pc.min_max(column.cast(pa.int64()))
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is None:
        return None
    factor = TICK_NS[column.type.unit]
    return max(low * factor, -_TIME_MAX), min(high * factor, _TIME_MAX)


def _spanning(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


@dataclass(slots=True)
class _StreamIntake:
    schema: KnownSchema
    arrow_schema: pa.Schema
    batches: list[pa.RecordBatch] = field(default_factory=list)


def _by_stream(bundles: Sequence[Bundle]) -> dict[tuple[str, builtins.bytes], _StreamIntake]:
    """By slot and schema: the batches that have rows."""
    streams: dict[tuple[str, builtins.bytes], _StreamIntake] = {}
    for bundle in bundles:
        for (slot, batch), schema, size in zip(bundle.slots.items(), bundle.schemas, bundle.sizes, strict=True):
            stream = streams.setdefault((slot, schema.body), _StreamIntake(schema, batch.schema))
            if batch.num_rows:
                stream.batches.append(_owned(batch, schema, size))
    return streams


def _owned(batch: pa.RecordBatch, schema: KnownSchema, size: int) -> pa.RecordBatch:
    """The batch as it is; or a copy, of a slice that would keep a large whole."""
    if schema.has_dictionaries or batch.get_total_buffer_size() <= _KEPT_RATIO_MAX * size + 4096:
        return batch
    return pa.ipc.read_record_batch(batch.serialize(), batch.schema)


def _put_together(stream: list[pa.RecordBatch], start: int) -> int:
    """Put the batches from `start` on into one, in place, and return where the next such row begins.

    A batch takes kilobytes beside its rows: a segment of single rows would take many times its size. Whether it is
    worth it is decided by their size in the log, which is the same when a start reads them from there.
    """
    loose, size = stream[start:], 0
    for batch in loose:
        size += pa.ipc.get_record_batch_size(batch)
        if size > SHARED_BYTES_MAX:
            return len(stream)
    whole = combined(loose, size)
    if whole is not None:
        stream[start:] = [whole]
    return len(stream)
