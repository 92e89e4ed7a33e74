"""The queue manifest: which batch objects are queued, in order, and the fence of their one consumer.

A `Manifest` is an immutable view of the object's bytes. Appending and dequeuing splice bytes: entries
that stay are copied as one block, never decoded and encoded again, so a write costs what copying costs.
Entries are parsed when they are asked for, but their sequences are checked together before the first is:
they count up by one to `next_sequence`, since every append hands out the next ones and a dequeue takes
entries from the head alone. Every structural fault is `Corrupt`, another version is `Unsupported`. Next
sequence and fence only grow and an entry never returns, so no two states of one queue have the same bytes,
and a version made from a hash of them never repeats. Format page: docs/format/buffer.md.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from penstock.buffer.format.frames import LENGTH, LENGTH_MAX, frame_starts
from penstock.errors import AtCapacity, Corrupt, InvalidInput, Unsupported

__all__ = ["FOOTER_BYTES", "Descriptor", "DescriptorDraft", "Manifest", "MetadataRange", "fence_of"]

VERSION: Final = 1
_FOOTER: Final = struct.Struct("<IQQH")
FOOTER_BYTES: Final = _FOOTER.size
_HEAD: Final = struct.Struct("<IQH")  # entry length, sequence, location length
_START: Final = struct.Struct("<IQ")  # entry length, sequence
_SEQUENCE: Final = struct.Struct("<Q")
_RANGE: Final = struct.Struct("<IqI")  # start index, ingestion time, payload length
_LOCATION_BYTES_MAX: Final = (1 << 16) - 1
_SEQUENCE_MAX: Final = (1 << 64) - 1
_WHAT: Final = "queue manifest"
_UPGRADE: Final = "upgrade this reader, or check that it is a manifest"


@dataclass(frozen=True, slots=True)
class MetadataRange:
    """The metadata of the records from `start_index` on, and when they arrived."""

    start_index: int
    ingestion_time_ms: int
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """One entry of the manifest: a batch object and its place in the queue. It pickles."""

    sequence: int
    location: str
    metadata: tuple[MetadataRange, ...] = ()

    def metadata_of(self, record: int) -> MetadataRange | None:
        """The last range that starts at or before this record; None when no range does."""
        return next((found for found in reversed(self.metadata) if found.start_index <= record), None)


class DescriptorDraft:
    """An entry that has no sequence yet, encoded once however often its append is tried."""

    __slots__ = ("location", "tail")

    def __init__(self, location: str, metadata: Sequence[MetadataRange] = ()) -> None:
        name = location.encode()
        if len(name) > _LOCATION_BYTES_MAX:
            raise InvalidInput(f"location {location[:80]!r}... is too long", f"over {_LOCATION_BYTES_MAX} bytes")
        parts = [struct.pack("<H", len(name)), name, LENGTH.pack(len(metadata))]
        for one in metadata:
            parts += (_RANGE.pack(one.start_index, one.ingestion_time_ms, len(one.payload)), one.payload)
        self.location = location
        self.tail = b"".join(parts)
        if len(self.tail) + _SEQUENCE.size > LENGTH_MAX:
            raise InvalidInput(f"metadata of {location!r} is too large", f"an entry ends at {LENGTH_MAX} bytes")

    def encode(self, sequence: int) -> bytes:
        return struct.pack("<IQ", _SEQUENCE.size + len(self.tail), sequence) + self.tail


class Manifest:
    """One state of the queue."""

    __slots__ = ("_count", "_starts", "_whole", "body", "fence", "next_sequence")

    def __init__(self, body: bytes, *, whole: bool = False) -> None:
        self.body = body
        self._count, self.next_sequence, self.fence = _footer(body)
        self._starts: array[int] | None = None
        # Spliced from whole entries, so that splicing once more need not walk them again.
        self._whole = whole

    @classmethod
    def empty(cls) -> Manifest:
        """The state of a queue whose manifest has not been written yet."""
        return cls(_FOOTER.pack(0, 0, 0, VERSION))

    @classmethod
    def decode(cls, body: bytes) -> Manifest:
        """Check every byte. Roles that only splice use the plain constructor, which checks what they touch."""
        manifest = cls(body)
        for _ in manifest:
            pass
        return manifest

    def __len__(self) -> int:
        """Batches queued."""
        return self._count

    def __iter__(self) -> Iterator[Descriptor]:
        return (self[index] for index in range(len(self._index()) - 1))

    def __getitem__(self, index: int) -> Descriptor:
        return _parse(self._frame(index))

    @property
    def first_sequence(self) -> int:
        """The sequence at the head of the queue; `next_sequence` when it is empty."""
        self._index()
        return self.next_sequence - self._count

    def after(self, sequence: int | None, limit: int) -> list[Descriptor]:
        """Up to `limit` entries behind this sequence, or from the head when it is None."""
        first = 0 if sequence is None else self._position_after(sequence)
        return [self[index] for index in range(first, min(first + limit, self._count))]

    def count_after(self, sequence: int | None) -> int:
        """How many entries lie behind this sequence."""
        return self._count if sequence is None else self._count - self._position_after(sequence)

    def location_of(self, sequence: int) -> str | None:
        """Where the batch with this sequence lies; None when the manifest has no such entry."""
        position = sequence - self.first_sequence
        return self[position].location if 0 <= position < self._count else None

    def bytes_through(self, sequence: int | None) -> int:
        """How many bytes the entries through this sequence take, or all of them when it is None."""
        return self._index()[self._count if sequence is None else self._position_after(sequence)]

    def append(self, drafts: Sequence[DescriptorDraft], *, bytes_max: int = LENGTH_MAX) -> Manifest:
        """The queue with these entries behind it, numbered from `next_sequence` on."""
        end = self.next_sequence + len(drafts)
        if end > _SEQUENCE_MAX or self._count + len(drafts) > LENGTH_MAX:
            raise AtCapacity("queue manifest can take no more entries", "its numbers have reached the format's limit")
        entries = [draft.encode(self.next_sequence + index) for index, draft in enumerate(drafts)]
        body = self._splice(self._entries(0), entries, self._count + len(drafts), end)
        if len(body) > bytes_max:
            why = f"{self._count} batches are queued, and {len(body)} bytes would pass the bound of {bytes_max}"
            raise AtCapacity("the queue is full", why, "let the consumer catch up, or raise manifest_bytes_max")
        return Manifest(body, whole=True)

    def dequeue_through(self, sequence: int) -> Manifest:
        """The queue without the entries up to and including `sequence`; itself when there are none."""
        first = self._position_after(sequence)
        if first == 0:
            return self
        return Manifest(self._splice(self._entries(first), [], self._count - first, self.next_sequence), whole=True)

    def with_fence(self, fence: int) -> Manifest:
        footer = _FOOTER.pack(self._count, self.next_sequence, fence, VERSION)
        return Manifest(b"".join((self._entries(0), footer)), whole=True)

    def _splice(self, kept: memoryview, added: list[bytes], count: int, next_sequence: int) -> bytes:
        return b"".join((kept, *added, _FOOTER.pack(count, next_sequence, self.fence, VERSION)))

    def _entries(self, first: int) -> memoryview:
        """The bytes of the entries from this position on, known to be whole."""
        start = 0 if first == 0 and self._whole else self._index()[first]
        return memoryview(self.body)[start:-FOOTER_BYTES]

    def _index(self) -> array[int]:
        if self._starts is None:
            entries = memoryview(self.body)[:-FOOTER_BYTES]
            starts = _sound_starts(entries, self._count, self.next_sequence)
            if starts is None:
                # Walk again, slowly, to say what is wrong: with the frames, or with the sequences in them.
                starts = frame_starts(entries, self._count, _WHAT)
                _check_order(entries, starts, self.next_sequence)
            self._starts = starts
        return self._starts

    def _frame(self, index: int) -> memoryview:
        starts = self._index()
        position = range(self._count)[index]
        return memoryview(self.body)[starts[position] : starts[position + 1]]

    def _position_after(self, sequence: int) -> int:
        """The first position whose sequence is greater."""
        return min(max(sequence + 1 - self.first_sequence, 0), self._count)


def fence_of(footer: bytes) -> int:
    """The fence in a manifest's footer, which may be read without the entries."""
    return _footer(footer)[2]


def _footer(body: bytes) -> tuple[int, int, int]:
    if not body:
        raise Corrupt(f"{_WHAT} is damaged", "it is empty")
    if len(body) < FOOTER_BYTES:
        raise Corrupt(f"{_WHAT} is damaged", f"it has {len(body)} bytes, and its footer alone has {FOOTER_BYTES}")
    count, next_sequence, fence, version = _FOOTER.unpack_from(body, len(body) - FOOTER_BYTES)
    if version != VERSION:
        raise Unsupported(f"{_WHAT} of version {version}", f"this release reads version {VERSION}", _UPGRADE)
    return count, next_sequence, fence


def _sound_starts(entries: memoryview, count: int, next_sequence: int) -> array[int] | None:
    """Where each entry starts, and where the last one ends; None unless all are whole and count up by one."""
    end, start, sequence = len(entries), 0, next_sequence - count
    if count > end // _START.size:
        return None
    starts, start_at, offset = array("Q", bytes(8 * (count + 1))), _START.unpack_from, LENGTH.size
    try:
        for index in range(count):
            starts[index] = start
            length, found = start_at(entries, start)
            if found != sequence:
                return None
            start += offset + length
            sequence += 1
    except struct.error:
        return None
    starts[count] = end
    return starts if start == end else None


def _check_order(entries: memoryview, starts: array[int], next_sequence: int) -> None:
    """The sequences are the only thing in the format that can be held against each other: no checksum covers them."""
    count, sequence_at, offset = len(starts) - 1, _SEQUENCE.unpack_from, LENGTH.size
    try:
        sequences = [sequence_at(entries, start + offset)[0] for start in starts[:count]]
    except struct.error as error:
        raise Corrupt(f"{_WHAT} is damaged", f"its last entry has no room for a sequence: {error}") from error
    if sequences == [*range(next_sequence - count, next_sequence)]:
        return
    for before, after in pairwise((*sequences, next_sequence)):
        if after != before + 1:
            why = f"sequences jump from {before} to {after}, and they are handed out one by one"
            raise Corrupt(f"{_WHAT} is damaged", why)


def _head(frame: memoryview) -> tuple[int, int, int]:
    if len(frame) < _HEAD.size:
        raise Corrupt(f"{_WHAT} is damaged", f"an entry of {len(frame)} bytes has no room for sequence and location")
    length, sequence, location_length = _HEAD.unpack_from(frame)
    return length, sequence, location_length


def _parse(frame: memoryview) -> Descriptor:
    _, sequence, location_length = _head(frame)
    try:
        start = _HEAD.size + location_length
        location = bytes(frame[_HEAD.size : start]).decode()
        (count,) = LENGTH.unpack_from(frame, start)
        metadata, end = _parse_ranges(frame, start + LENGTH.size, count)
    except (struct.error, UnicodeDecodeError) as error:
        raise Corrupt(f"{_WHAT} is damaged", f"entry {sequence} does not parse: {error}") from error
    if end != len(frame):
        raise Corrupt(f"{_WHAT} is damaged", f"entry {sequence} has {len(frame)} bytes, and its fields have {end}")
    return Descriptor(sequence, location, metadata)


def _parse_ranges(frame: memoryview, start: int, count: int) -> tuple[tuple[MetadataRange, ...], int]:
    ranges = []
    for _ in range(count):
        start_index, ingestion_time_ms, length = _RANGE.unpack_from(frame, start)
        start += _RANGE.size + length
        # A payload cut short shows at the next range, or at the end of the entry.
        ranges.append(MetadataRange(start_index, ingestion_time_ms, bytes(frame[start - length : start])))
    return tuple(ranges), start
