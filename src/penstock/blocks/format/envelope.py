"""The envelope of every value: what it is, how it is written, and whether it is whole.

```
 0       4     5     6       7    8            12        16
 │ magic │ ver │kind │ flags │ 0  │ body bytes │ crc32c  │ body ...
```

The checksum covers everything but itself. A value of a newer format is refused, never guessed at; one
whose checksum, length or kind does not hold raises `Corrupt` and is left where it is. The store's record, which is
read first, is judged by its version alone: a newer format may sum up otherwise.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import google_crc32c
import numpy as np
import zstandard

from penstock.blocks.format.arrays import Array
from penstock.errors import Corrupt, Unsupported

__all__ = ["HEADER_BYTES", "Envelope", "RecordKind"]

_HEADER: Final = struct.Struct("<4sBBBBI")
_CHECKSUM: Final = struct.Struct("<I")
HEADER_BYTES: Final = _HEADER.size + _CHECKSUM.size

_ZSTD: Final = 1
# Level 1 of zstd writes text blocks at several hundred MB/s; higher ones gain a few percent for thrice the time.
_ZSTD_LEVEL: Final = 1
# Parts of a body below this are put together before they are summed up: a copy costs less than a call for each.
_SMALL_BYTES: Final = 16 << 10
# A body longer than this was never written: it stops a damaged length from asking for all memory.
_BODY_BYTES_MAX: Final = 1 << 30


class RecordKind:
    """Kinds of values that are no fragments; fragments carry their family's number, which is below all of these."""

    STORE: Final = 100
    # What a store keeps under a name of its own: a collection, a tenant.
    NAMED: Final = 101
    HEAD: Final = 102
    PAGE: Final = 103
    POSITION: Final = 104


@dataclass(frozen=True, slots=True)
class Envelope:
    """How one kind of store seals its values."""

    # As messages call it, with its article.
    store: str
    magic: bytes
    version: int

    def seal(self, kind: int, *parts: bytes | Array, compress: bool = False) -> bytes:
        """The value that holds `parts`, one after the other, as its body."""
        flat = [part if isinstance(part, bytes) else _flat(part) for part in parts]
        size = sum(map(len, flat))
        if compress:
            flat = [_COMPRESSORS.mine.compress(b"".join(flat))]
        elif size <= _SMALL_BYTES:
            flat = [b"".join(flat)]
        header = _HEADER.pack(self.magic, self.version, kind, _ZSTD if compress else 0, 0, size)
        return b"".join([header, _CHECKSUM.pack(_checksum(header, flat)), *flat])

    def unseal(self, kind: int, value: bytes) -> memoryview:
        """The body of a value of this kind."""
        if len(value) < HEADER_BYTES or value[:4] != self.magic:
            raise Corrupt("a block has no header", f"it holds {len(value)} bytes that do not begin with {self.magic!r}")
        _, version, found, flags, _, size = _HEADER.unpack_from(value)
        (checksum,) = _CHECKSUM.unpack_from(value, _HEADER.size)
        body = memoryview(value)[HEADER_BYTES:]
        whole = _checksum(value[: _HEADER.size], [np.frombuffer(value, np.uint8, offset=HEADER_BYTES)]) == checksum
        # Whoever has read the store's record knows its format: another number in a broken block is part of the damage.
        if not 1 <= version <= self.version and (whole or kind == RecordKind.STORE):
            raise self.newer(version)
        if not whole:
            raise Corrupt("a block's checksum does not match", f"its {len(body)} bytes are not those that were written")
        if found != kind:
            raise Corrupt("a block is of another kind", f"expected {kind}, found {found}")
        if flags & _ZSTD:
            body = _decompress(body, size)
        if len(body) != size:
            raise Corrupt("a block's length does not match", f"it declares {size} bytes and has {len(body)}")
        return body

    def newer(self, version: int) -> Unsupported:
        """The refusal of a store that a later Penstock wrote."""
        return Unsupported(
            f"{self.store} has format {version}",
            f"this version of Penstock reads formats 1 to {self.version}",
            "open it with a newer Penstock; nothing was changed",
        )


class _Compressors(threading.local):
    """A compressor for each thread: its memory is used again, which is most of what a small value costs."""

    def __init__(self) -> None:
        self.mine = zstandard.ZstdCompressor(level=_ZSTD_LEVEL)


_COMPRESSORS: Final = _Compressors()


def _flat(part: Array) -> Any:
    if part.nbytes <= _SMALL_BYTES:
        return part.tobytes()
    return np.ascontiguousarray(part).reshape(-1).view(np.uint8)


def _checksum(header: bytes, parts: Sequence[bytes | Array]) -> int:
    checksum: int = google_crc32c.value(header)
    for part in parts:
        checksum = google_crc32c.extend(checksum, part)
    return checksum


def _decompress(body: memoryview, size: int) -> memoryview:
    if size > _BODY_BYTES_MAX:
        raise Corrupt("a block's length does not match", f"it declares {size} bytes")
    try:
        return memoryview(zstandard.ZstdDecompressor().decompress(body, max_output_size=size))
    except zstandard.ZstdError as error:
        raise Corrupt("a block cannot be decompressed", str(error)) from error
