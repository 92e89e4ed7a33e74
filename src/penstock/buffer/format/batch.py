"""Batch objects: records framed by their lengths, and a footer of seven bytes that says how to read them.

Encoding copies a large record once and a small one twice. Decoding copies none: `Records` are views of
the bytes that were fetched, or of those that zstd gave back. Another version or compression is
`Unsupported`; a count, length or frame that does not add up is `Corrupt`; a batch that really holds more
bytes or records than the bounds is `AtCapacity`. Format page: docs/format/buffer.md.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import chain
from typing import Final, overload

import zstandard

from penstock.buffer.format.frames import LENGTH, LENGTH_MAX, frame_starts
from penstock.errors import AtCapacity, Corrupt, InvalidInput, Unsupported
from penstock.objects import Body

__all__ = [
    "DECODED_BYTES_MAX",
    "DECODED_RECORDS_MAX",
    "RECORDS_MAX",
    "Compression",
    "RecordBlock",
    "Records",
    "checked_records",
    "decode_batch",
    "encode_batch",
    "takes_long",
]

VERSION: Final = 1
_FOOTER: Final = struct.Struct("<BIH")

# A batch that unpacks to more than this is taken for a bomb: sixteen times the default flush size.
DECODED_BYTES_MAX: Final = 1024 * 1024 * 1024

# Walking the lengths takes 0.2 to 0.6 µs a record, however small it is: at this bound one to three seconds of a core.
DECODED_RECORDS_MAX: Final = 4 * 1024 * 1024

# Producers stay well below it: a batch closes at this many records, and no input brings more of them.
RECORDS_MAX: Final = 1024 * 1024

# Above either, decoding is too long for an event loop: some milliseconds.
_LONG_BYTES: Final = 256 * 1024
_LONG_RECORDS: Final = 4096

# The least a zstd block takes (a header of three bytes, and one to repeat), and the most it gives back.
_PACKED_BLOCK_BYTES_MIN: Final = 4
_UNPACKED_BLOCK_BYTES_MAX: Final = 128 * 1024

# So a piece of this size overshoots the bound by 128 MiB at most.
_PIECE_BYTES: Final = 4096

# Records of this size and above are kept as they are until the block is sealed; smaller ones are framed into one
# piece a call, because an object of their own would cost more memory than they do.
_KEEP_BYTES: Final = 4096

# zstd's own default; higher levels cost more time than the network they save on telemetry.
_ZSTD_LEVEL: Final = 3


class Compression(IntEnum):
    """The footer's first byte."""

    NONE = 0
    ZSTD = 1


def encode_batch(records: Sequence[Body], compression: Compression = Compression.NONE) -> bytes:
    """The whole batch object; without records, an empty one."""
    block = RecordBlock()
    block.extend(_all_bytes(records))
    return block.seal(compression)


def decode_batch(body: Body, *, bytes_max: int = DECODED_BYTES_MAX, records_max: int = DECODED_RECORDS_MAX) -> Records:
    """The records of a batch object, without copying them; `body` must not change as long as they live."""
    if len(body) < _FOOTER.size:
        raise Corrupt("batch object is damaged", f"it has {len(body)} bytes, and its footer alone has {_FOOTER.size}")
    compression, count, version = _FOOTER.unpack_from(body, len(body) - _FOOTER.size)
    if version != VERSION:
        raise Unsupported(f"batch object of version {version}", f"this release reads version {VERSION}")
    block = memoryview(body)[: -_FOOTER.size].toreadonly()
    if compression not in (Compression.NONE, Compression.ZSTD):
        raise Unsupported(f"batch object of compression {compression}", "this release reads 0 (none) and 1 (zstd)")
    _check_count(count, _unpacked_bytes_max(block, compression), records_max)
    if compression == Compression.ZSTD:
        block = memoryview(_decompress(block, bytes_max))
    return Records(block, frame_starts(block, count, "batch object"))


def takes_long(body: Body) -> bool:
    """Whether decoding belongs into a thread, by the footer and the frame's claim. No error: decoding finds those."""
    if len(body) < _FOOTER.size:
        return False
    compression, count, _ = _FOOTER.unpack_from(body, len(body) - _FOOTER.size)
    if compression != Compression.ZSTD:
        return bool(count > _LONG_RECORDS)
    return count > _LONG_RECORDS or _unpacked_bytes_max(memoryview(body)[: -_FOOTER.size], compression) > _LONG_BYTES


class RecordBlock:
    """The growing record block of one batch. Sealing copies it once, into bytes that nobody else can change."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self.count = 0

    def __len__(self) -> int:
        """Bytes so far, length fields included."""
        return self._size

    def extend(self, records: Sequence[bytes]) -> None:
        """Add records of sizes known to be good, all or none."""
        lengths = list(map(len, records))
        framed = chain.from_iterable(zip(map(LENGTH.pack, lengths), records, strict=True))
        size = sum(lengths) + LENGTH.size * len(lengths)
        if size < _KEEP_BYTES * len(lengths):
            # One join in C, however many there are: about 0.1 µs a record.
            self._parts.append(b"".join(framed))
        else:
            self._parts += framed
        self._size += size
        self.count += len(lengths)

    def seal(self, compression: Compression = Compression.NONE) -> bytes:
        """The batch object's bytes. The block is spent: nothing may be added after this."""
        parts, self._parts = self._parts, []
        footer = _FOOTER.pack(compression, self.count, VERSION)
        if compression == Compression.ZSTD:
            # The frame's own checksum is the only one that the format has room for; every reader of zstd checks it.
            packer = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True).compressobj(size=self._size)
            parts = [*map(packer.compress, parts), packer.flush()]
        return b"".join((*parts, footer))


class Records(Sequence[memoryview]):
    """The records of one batch, as read-only views into its bytes."""

    __slots__ = ("_block", "_starts")

    def __init__(self, block: memoryview, starts: array[int]) -> None:
        self._block = block
        self._starts = starts

    def __len__(self) -> int:
        return len(self._starts) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of all records together, length fields left out."""
        return len(self._block) - LENGTH.size * len(self)

    @overload
    def __getitem__(self, index: int) -> memoryview: ...
    @overload
    def __getitem__(self, index: slice) -> list[memoryview]: ...
    def __getitem__(self, index: int | slice) -> memoryview | list[memoryview]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        position = range(len(self))[index]
        return self._block[self._starts[position] + LENGTH.size : self._starts[position + 1]]

    def __iter__(self) -> Iterator[memoryview]:
        block, size, starts = self._block, LENGTH.size, self._starts
        start = 0
        for end in starts[1:]:
            yield block[start + size : end]
            start = end

    def __repr__(self) -> str:
        return f"<Records: {len(self)} of {self.nbytes} bytes>"


def checked_records(records: Iterable[Body]) -> tuple[bytes, ...]:
    """The caller's records, at least one of them, out of reach of later changes."""
    given = _all_bytes(records)
    if not given:
        raise InvalidInput("no records to produce", "the sequence is empty", "skip the call")
    if len(given) > RECORDS_MAX:
        raise InvalidInput(f"{len(given)} records in one call", f"a call takes {RECORDS_MAX} at most", "split them")
    return given


def _all_bytes(records: Iterable[Body]) -> tuple[bytes, ...]:
    """What cannot be framed is refused by its place."""
    if isinstance(records, bytes | bytearray | memoryview | str):
        raise InvalidInput(
            "records must be a sequence of records", f"got one {type(records).__name__}", "wrap it in a list"
        )
    try:
        given = tuple(records)
    except TypeError as error:
        why = f"got one {type(records).__name__}"
        raise InvalidInput("records must be a sequence of records", why, "put them into a list") from error
    # The common case is told by one pass in C; only other kinds of buffers are copied one by one.
    if not set(map(type, given)) <= {bytes}:
        given = tuple(_as_bytes(index, record) for index, record in enumerate(given))
    if len(given) > LENGTH_MAX or max(map(len, given), default=0) > LENGTH_MAX:
        why = f"the format counts records and bytes to {LENGTH_MAX}"
        raise InvalidInput("the records do not fit a batch", why, "split them")
    return given  # type: ignore[return-value]  # all of them bytes by now


def _as_bytes(index: int, record: object) -> bytes:
    if isinstance(record, bytes | bytearray | memoryview):
        return bytes(record)
    why = "a record is bytes, bytearray or memoryview"
    raise InvalidInput(f"record {index} is {type(record).__name__}", why, "encode it")


def _unpacked_bytes_max(block: memoryview, compression: int) -> int:
    """The most this block can hold: its claim where it makes one, and else what a frame of its length can."""
    if compression == Compression.NONE:
        return len(block)
    possible = len(block) // _PACKED_BLOCK_BYTES_MIN * _UNPACKED_BLOCK_BYTES_MAX
    try:
        claim = zstandard.get_frame_parameters(block).content_size
    except zstandard.ZstdError:
        return possible
    # An empty frame's word is not taken, as below.
    return possible if claim in (0, zstandard.CONTENTSIZE_UNKNOWN) else claim


def _check_count(count: int, unpacked_bytes_max: int, records_max: int) -> None:
    """Before anything is unpacked: a count that cannot be is damage, and one that is too high is somebody's choice."""
    if count > unpacked_bytes_max // LENGTH.size:
        why = f"its footer counts {count} records, and it holds {unpacked_bytes_max} bytes at most"
        raise Corrupt("batch object is damaged", why)
    if count > records_max:
        why = f"{count} records and the bound is {records_max}"
        raise AtCapacity("batch object has too many records", why, "raise decoded_records_max, or remove the object")


def _decompress(block: memoryview, bytes_max: int) -> bytes:
    unpacker = zstandard.ZstdDecompressor()
    try:
        size = zstandard.get_frame_parameters(block).content_size
        # The one-shot call takes an empty frame's word for it and looks no further, so that one is streamed too.
        if size in (0, zstandard.CONTENTSIZE_UNKNOWN):
            return _stream(unpacker, block, bytes_max)
        _check_claim(size, len(block))
        _check_unpacked(size, bytes_max)
        return unpacker.decompress(block, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Corrupt("batch object is damaged", f"zstd: {error}") from error


def _stream(unpacker: zstandard.ZstdDecompressor, block: memoryview, bytes_max: int) -> bytes:
    """A frame need not say its size: unpack piece by piece, and stop soon after the bound."""
    stream, parts, size = unpacker.decompressobj(), [], 0
    for start in range(0, len(block), _PIECE_BYTES):
        parts.append(stream.decompress(block[start : start + _PIECE_BYTES]))
        size += len(parts[-1])
        _check_unpacked(size, bytes_max)
    if not stream.eof or stream.unused_data:
        raise Corrupt("batch object is damaged", "its zstd frame does not end where the footer begins")
    return b"".join(parts)


def _check_claim(size: int, packed: int) -> None:
    """A claim that no frame of this length can keep is damage, which no higher bound would cure."""
    possible = packed // _PACKED_BLOCK_BYTES_MIN * _UNPACKED_BLOCK_BYTES_MAX
    if size > possible:
        why = f"its zstd frame of {packed} bytes claims to hold {size}, and can hold {possible} at most"
        raise Corrupt("batch object is damaged", why)


def _check_unpacked(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        why = f"{size} bytes and the bound is {bytes_max}"
        raise AtCapacity(
            "batch object is too large when unpacked", why, "raise decoded_bytes_max, or remove the object"
        )
