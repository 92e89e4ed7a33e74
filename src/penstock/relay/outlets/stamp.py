"""The stamp of a batch that a relay put into the queue, and how a consumer knows a repeat by it. Pure.

A stamp is the batch's metadata: the envelope of Arrow records, then JSON. `relay` is drawn at random when a relay's
journal is made, and `ordinal` counts the segments it has begun to send: a segment that is sent again, because nobody
could tell whether it had arrived, has the stamp it had. A relay sends one segment at a time and in order, so whatever
is at or below the highest stamp seen of it is a repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec
import pyarrow as pa

from penstock.errors import Corrupt
from penstock.objects import Body
from penstock.records import ArrowEnvelope, Signal
from penstock.undecodable import UNDECODABLE

__all__ = ["RelayMarks", "RelayStamp", "decode_part", "encode_part"]

IpcCompression: TypeAlias = Literal["zstd"]

_SLOT: Final = b"penstock.slot"
# Threads cost more than they save on messages of this size.
_READING: Final = pa.ipc.IpcReadOptions(use_threads=False)
_SIGNALS: Final = {signal.name.lower(): signal for signal in Signal}


class RelayStamp(msgspec.Struct, frozen=True):
    """Which part of which segment this is, and of which sending."""

    relay: str
    ordinal: int
    instance: int
    segment_seq: int
    part: int
    parts: int
    signals: list[str]

    def encode(self) -> bytes:
        signal = _SIGNALS.get(self.signals[0]) if len(self.signals) == 1 else None
        return ArrowEnvelope(signal).encode() + _ENCODER.encode(self)

    @classmethod
    def decode(cls, payload: bytes) -> RelayStamp | None:
        """None for metadata of somebody else; `Unsupported` for an encoding that this release does not know."""
        ArrowEnvelope.decode(payload)
        try:
            return _DECODER.decode(payload[ArrowEnvelope.SIZE :])
        except UNDECODABLE:
            return None


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(RelayStamp)


class RelayMarks:
    """The highest stamp that a sink holds of each relay. Keep `state` in the sink's own transactions."""

    def __init__(self, state: Mapping[str, tuple[int, int]] | None = None) -> None:
        self._marks = dict(state or {})

    @property
    def state(self) -> dict[str, tuple[int, int]]:
        return dict(self._marks)

    def is_repeat(self, stamp: RelayStamp) -> bool:
        return (stamp.ordinal, stamp.part) <= self._marks.get(stamp.relay, (0, 0))

    def admit(self, stamp: RelayStamp) -> bool:
        """Whether this batch is new; if so it counts as stored from now on."""
        if self.is_repeat(stamp):
            return False
        self._marks[stamp.relay] = (stamp.ordinal, stamp.part)
        return True


def encode_part(slices: Sequence[tuple[str, pa.Table]], compression: IpcCompression | None) -> list[bytes]:
    """Records of one batch: an Arrow stream for each slice, which names its slot in the schema's metadata."""
    return [_stream(slot, table, compression) for slot, table in slices]


def decode_part(records: Sequence[Body]) -> dict[str, list[pa.Table]]:
    """Tables by slot, as views into the records."""
    slots: dict[str, list[pa.Table]] = {}
    for record in records:
        try:
            table = pa.ipc.open_stream(pa.py_buffer(record), options=_READING).read_all()
        except pa.ArrowException as error:
            raise Corrupt("a record of a relay's batch is not an Arrow stream", str(error)) from error
        metadata = dict(table.schema.metadata or {})
        slot = metadata.pop(_SLOT, b"").decode()
        slots.setdefault(slot, []).append(table.replace_schema_metadata(metadata or None))
    return slots


def _stream(slot: str, table: pa.Table, compression: IpcCompression | None) -> bytes:
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), _SLOT: slot.encode()})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False, unify_dictionaries=True)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
