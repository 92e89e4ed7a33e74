"""A bundle: the unit of ingest, a few Arrow record batches that arrive together.

Each batch has a slot of its own (logs, log attributes, …). Schemas may differ from bundle to bundle and change over
time. `encode` and `decode` turn bundles into the payload of one frame of the log and back, without a copy on the way
back: see docs/format/wal.md.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

import msgspec
import pyarrow as pa
import xxhash

from penstock.errors import Corrupt, InvalidInput

__all__ = ["Ack", "Bundle", "KnownSchema", "SharedBatches", "combined", "decode_bundles", "encode_bundles"]

_ALIGNMENT: Final = 8
_LENGTH: Final = struct.Struct("<I")
# Arrow messages carry their own length in 31 bits; so do frames.
_BATCH_BYTES_MAX: Final = (1 << 31) - (1 << 20)
# Putting batches together copies them: worth it for small ones.
_SHARED_BYTES_MAX: Final = 4 << 20
# The length field of a frame has 32 bits.
_PAYLOAD_BYTES_MAX: Final = (1 << 32) - 1
_TIME_END: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Bundle:
    """`slots` by name. `event_time_ns` is the first and last event time in it, where the caller knows them."""

    slots: Mapping[str, pa.RecordBatch]
    signal: str = ""
    identity: str = ""
    event_time_ns: tuple[int, int] | None = None
    # Asked for several times on the way, and each costs microseconds.
    rows: int = field(init=False, repr=False, compare=False)
    nbytes: int = field(init=False, repr=False, compare=False)
    # Of each slot.
    sizes: Sequence[int] = field(init=False, repr=False, compare=False)
    schemas: Sequence[KnownSchema] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Whatever the log could not hold is refused here: behind this point it would fail for others as well."""
        if not self.slots:
            raise InvalidInput("a bundle has no slots", "it must have one record batch at least")
        for slot, batch in self.slots.items():
            if not slot or not isinstance(batch, pa.RecordBatch):
                raise InvalidInput(
                    f"slot {slot!r} of a bundle cannot be stored", "a name and an Arrow record batch are needed"
                )
            _check_text("slot", slot)
        _check_text("signal", self.signal)
        _check_text("identity", self.identity)
        if self.event_time_ns is not None:
            _check_times(self.event_time_ns)
        batches = self.slots.values()
        object.__setattr__(self, "rows", sum([batch.num_rows for batch in batches]))
        sizes = [_batch_bytes(slot, batch) for slot, batch in self.slots.items()]
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "nbytes", sum(sizes))
        object.__setattr__(self, "schemas", [known_schema(batch.schema) for batch in batches])


class Ack(msgspec.Struct, frozen=True):
    """A bundle's place in the log, when it arrived, and whether it would survive a power loss now."""

    bundle_seq: int
    ingestion_ms: int
    durable: bool


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """A schema as bytes, and what follows from it."""

    body: bytes
    # The same for equal fields, whatever their metadata.
    fingerprint: str
    # Whether a batch needs dictionaries beside itself, at any depth.
    has_dictionaries: bool


def _check_text(what: str, text: str) -> None:
    try:
        text.encode()
    except (AttributeError, UnicodeEncodeError) as error:
        raise InvalidInput(
            f"the {what} of a bundle cannot be {text!r}", "it must be text that UTF-8 can hold"
        ) from error


def _check_times(times: Any) -> None:
    if not (isinstance(times, tuple) and len(times) == 2 and all(type(time) is int for time in times)):
        raise InvalidInput(f"the event times {times!r} are no range", "two whole numbers of nanoseconds are needed")
    if not -_TIME_END <= times[0] <= times[1] < _TIME_END:
        raise InvalidInput(
            f"the event times {times} are no range", "the first must not be above the second, and both have 64 bits"
        )


def _batch_bytes(slot: str, batch: pa.RecordBatch) -> int:
    # Without rows there is nothing to count, and Arrow's own count fails on an empty union that was read back.
    size = batch.nbytes if batch.num_rows else 0
    if size > _BATCH_BYTES_MAX:
        raise InvalidInput(f"slot {slot!r} has {size} bytes", f"a batch has {_BATCH_BYTES_MAX} at most", "split it")
    return size


def known_schema(schema: pa.Schema) -> KnownSchema:
    """By its bytes: they are cheaper to make and to compare than a schema is to hash."""
    known = _known_schema(schema.serialize().to_pybytes())
    if known.has_dictionaries:
        # Of the schema itself: its bytes do not tell a dictionary of dictionaries from a plain one.
        for one in schema:
            _check_readable(one.name, one.type)
    return known


@lru_cache(maxsize=1024)
def _known_schema(body: bytes) -> KnownSchema:
    schema = _read_schema(body)
    fingerprint = xxhash.xxh3_64_hexdigest(schema.remove_metadata().serialize())
    return KnownSchema(body, fingerprint, any(_is_dictionary(one.type) for one in schema))


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


class _Head(msgspec.Struct, array_like=True, frozen=True):
    ingestion_ms: int
    schemas: list[tuple[int, int]]
    bundles: list[_Entry]


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Head)


def encode_bundles(bundles: Sequence[Bundle], ingestion_ms: int, shared: SharedBatches | None = None) -> list[Any]:
    """The payload as a list of buffers to be laid one behind the other. `shared` are the bundles' own, if there are any.

    ```
    u32 length of the head, head (msgpack), zeros to 8 bytes, then bodies, each at a multiple of 8
    ```
    """
    bodies = _Bodies()
    if shared is None and len(bundles) > 1:
        shared = SharedBatches(bundles)
    if shared is not None and shared.single is not None:
        entries = _single_entries(bundles, *shared.single, shared, bodies)
    else:
        entries = _entries(bundles, shared, bodies)
    head = _ENCODER.encode(_Head(ingestion_ms, bodies.schemas, entries))
    prefix = _LENGTH.pack(len(head)) + head
    parts = [prefix + bytes(-len(prefix) % _ALIGNMENT), *bodies.parts]
    if (size := sum([len(part) for part in parts])) > _PAYLOAD_BYTES_MAX:
        raise InvalidInput(
            f"bundles of {size} bytes were sent together", f"a record of the log has {_PAYLOAD_BYTES_MAX}", "send fewer"
        )
    return parts


def _single_entries(
    bundles: Sequence[Bundle], name: str, schema: KnownSchema, shared: SharedBatches, bodies: _Bodies
) -> list[_Entry]:
    """All bundles have rows of one body."""
    laid = bodies.slot(name, shared.whole[name, schema.body], schema)
    counts = [bundle.rows for bundle in bundles]
    starts = accumulate(counts, initial=0)
    return [
        _Entry(
            bundle.signal,
            bundle.identity,
            bundle.event_time_ns,
            [_Slot(name, laid.schema, laid.offset, laid.length, start, count)],
        )
        for bundle, start, count in zip(bundles, starts, counts, strict=False)
    ]


def _entries(bundles: Sequence[Bundle], shared: SharedBatches | None, bodies: _Bodies) -> list[_Entry]:
    rows = None if shared is None else _SharedRows(shared)
    return [
        _Entry(
            bundle.signal,
            bundle.identity,
            bundle.event_time_ns,
            [
                (rows and rows.slot(name, batch, schema, bodies)) or bodies.slot(name, batch, schema)
                for (name, batch), schema in zip(bundle.slots.items(), bundle.schemas, strict=True)
            ],
        )
        for bundle in bundles
    ]


class SharedBatches:
    """Batches of one slot and schema put together, of which each bundle has some rows: small ones cost little then.

    Made once, for the log and for the open segment.
    """

    def __init__(self, bundles: Sequence[Bundle]) -> None:
        # The one slot and schema that all bundles have, each with rows: the usual case, and worth a short way.
        self.single = _single_stream(bundles)
        if self.single is not None:
            name, schema = self.single
            whole = combined([bundle.slots[name] for bundle in bundles], sum([bundle.nbytes for bundle in bundles]))
            self.whole = {} if whole is None else {(name, schema.body): whole}
            if whole is None:
                self.single = None
            return
        groups: dict[tuple[str, bytes], list[pa.RecordBatch]] = {}
        sizes: dict[tuple[str, bytes], int] = {}
        for bundle in bundles:
            for (name, batch), schema, size in zip(bundle.slots.items(), bundle.schemas, bundle.sizes, strict=True):
                if batch.num_rows and not schema.has_dictionaries:
                    key = name, schema.body
                    groups.setdefault(key, []).append(batch)
                    sizes[key] = sizes.get(key, 0) + size
        self.whole = {key: whole for key, group in groups.items() if (whole := combined(group, sizes[key])) is not None}


def _single_stream(bundles: Sequence[Bundle]) -> tuple[str, KnownSchema] | None:
    (name, *others), (schema, *_) = bundles[0].slots, bundles[0].schemas
    # Equal schemas are one object: they come out of a cache.
    same = [
        bundle
        for bundle in bundles
        if bundle.schemas[0] is schema and bundle.rows and len(bundle.schemas) == 1 and name in bundle.slots
    ]
    return None if others or schema.has_dictionaries or len(same) < len(bundles) else (name, schema)


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


def combined(batches: list[pa.RecordBatch], size: int) -> pa.RecordBatch | None:
    """The rows of batches that all have some, of this size together, in one; None where they do not fit one."""
    if len(batches) < 2 or not batches[0].num_columns or size > _SHARED_BYTES_MAX:
        return None
    try:
        whole = pa.Table.from_batches(batches).combine_chunks().to_batches()
    except pa.ArrowException:
        # A type that Arrow cannot put together: its batches stay apart.
        return None
    return whole[0] if len(whole) == 1 else None


class _Bodies:
    """Bodies of one frame; a schema that several batches share is written once."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.schemas: list[tuple[int, int]] = []
        self._numbers: dict[bytes, int] = {}
        self._end = 0

    def slot(self, name: str, batch: pa.RecordBatch, schema: KnownSchema) -> _Slot:
        if schema.has_dictionaries:
            return _Slot(name, -1, *self._put(_stream(batch)))
        number = self._numbers.get(schema.body)
        if number is None:
            number = self._numbers[schema.body] = len(self.schemas)
            self.schemas.append(self._put(pa.py_buffer(schema.body)))
        return _Slot(name, number, *self._put(batch.serialize()))

    def _put(self, body: pa.Buffer) -> tuple[int, int]:
        offset, size = self._end, body.size
        self.parts.append(memoryview(body).cast("B"))
        gap = -size % _ALIGNMENT
        if gap:
            self.parts.append(bytes(gap))
        self._end += size + gap
        return offset, size


def decode_bundles(payload: memoryview) -> tuple[int, list[Bundle]]:
    """Ingestion time and bundles, as views into `payload`. The frame's checksum was good: a fault here is a bug's."""
    try:
        (length,) = _LENGTH.unpack_from(payload)
        head = _DECODER.decode(payload[_LENGTH.size : _LENGTH.size + length])
        start = _LENGTH.size + length
        bodies = payload[start + -start % _ALIGNMENT :]
        schemas = [_read_schema(bytes(bodies[at : at + size])) for at, size in head.schemas]
        return head.ingestion_ms, [_bundle(entry, schemas, bodies) for entry in head.bundles]
    except (
        struct.error,
        msgspec.MsgspecError,
        pa.ArrowException,
        ValueError,
        LookupError,
        TypeError,
        OSError,
    ) as error:
        # Arrow reports some of what it cannot read as an OSError, and text that is none is a ValueError.
        raise Corrupt("a frame of the log holds no bundles", str(error)) from error


def _bundle(entry: _Entry, schemas: list[pa.Schema], bodies: memoryview) -> Bundle:
    slots = {}
    for slot in entry.slots:
        body = pa.py_buffer(bodies[slot.offset : slot.offset + slot.length])
        if slot.schema < 0:
            slots[slot.name] = pa.ipc.open_stream(body).read_next_batch()
        else:
            batch = pa.ipc.read_record_batch(body, schemas[slot.schema])
            slots[slot.name] = batch if slot.rows < 0 else batch.slice(slot.start, slot.rows)
    return Bundle(slots, entry.signal, entry.identity, entry.event_time_ns)


@lru_cache(maxsize=256)
def _read_schema(body: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(body))


def _check_readable(column: str, kind: pa.DataType) -> None:
    """Arrow writes a dictionary whose values have dictionaries, and does not read it back."""
    if isinstance(kind, pa.BaseExtensionType):
        _check_readable(column, kind.storage_type)
    elif pa.types.is_dictionary(kind):
        if _is_dictionary(kind.value_type):
            raise InvalidInput(
                f"column {column!r} has a dictionary of dictionaries", "Arrow cannot read one back", "decode the inner"
            )
        _check_readable(column, kind.value_type)
    else:
        for at in range(kind.num_fields):
            _check_readable(column, kind.field(at).type)


def _is_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return _is_dictionary(kind.storage_type)
    return any(_is_dictionary(kind.field(at).type) for at in range(kind.num_fields))


def _stream(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
