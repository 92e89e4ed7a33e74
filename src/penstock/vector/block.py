"""The envelope of every value: what it is, how it is written, and whether it is whole.

```
 0        4     5     6       7    8            12        16
 │ "PSVB" │ ver │kind │ flags │ 0  │ body bytes │ crc32c  │ body ...
```

The checksum covers everything but itself. A value of a newer format is refused, never guessed at; one
whose checksum, length or kind does not hold raises `Corrupt` and is left where it is. The store's record, which is
read first, is judged by its version alone: a newer format may sum up otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import google_crc32c
import numpy as np
import zstandard

from penstock.errors import Corrupt, Unsupported
from penstock.vector.arrays import Array

__all__ = ["FORMAT_VERSION", "HEADER_BYTES", "Kind", "seal", "unseal"]

MAGIC: Final = b"PSVB"
FORMAT_VERSION: Final = 1
_HEADER: Final = struct.Struct("<4sBBBBI")
_CHECKSUM: Final = struct.Struct("<I")
HEADER_BYTES: Final = _HEADER.size + _CHECKSUM.size

_ZSTD: Final = 1
# Level 1 of zstd writes text blocks at several hundred MB/s; higher ones gain a few percent for thrice the time.
_ZSTD_LEVEL: Final = 1
# A body longer than this was never written: it stops a damaged length from asking for all memory.
_BODY_BYTES_MAX: Final = 1 << 30


class Kind:
    """Kinds of values that are no fragments; fragments carry their family's number."""

    STORE: Final = 100
    COLLECTION: Final = 101
    HEAD: Final = 102
    PAGE: Final = 103
    POSITION: Final = 104


def seal(kind: int, *parts: bytes | Array, compress: bool = False) -> bytes:
    """The value that holds `parts`, one after the other, as its body."""
    flat = [part if isinstance(part, bytes) else _flat(part) for part in parts]
    size = sum(map(len, flat))
    if compress:
        flat = [zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(b"".join(flat))]
    header = _HEADER.pack(MAGIC, FORMAT_VERSION, kind, _ZSTD if compress else 0, 0, size)
    return b"".join([header, _CHECKSUM.pack(_checksum(header, flat)), *flat])


def unseal(kind: int, value: bytes) -> memoryview:
    """The body of a value of this kind."""
    if len(value) < HEADER_BYTES or value[:4] != MAGIC:
        raise Corrupt("a block has no header", f"it holds {len(value)} bytes that do not begin with {MAGIC!r}")
    _, version, found, flags, _, size = _HEADER.unpack_from(value)
    (checksum,) = _CHECKSUM.unpack_from(value, _HEADER.size)
    body = memoryview(value)[HEADER_BYTES:]
    whole = _checksum(value[: _HEADER.size], [np.frombuffer(value, np.uint8, offset=HEADER_BYTES)]) == checksum
    # Whoever has read the store's record knows its format: another number in a broken block is part of the damage.
    if not 1 <= version <= FORMAT_VERSION and (whole or kind == Kind.STORE):
        raise newer_format(version)
    if not whole:
        raise Corrupt("a block's checksum does not hold", f"its {len(body)} bytes are not those that were written")
    if found != kind:
        raise Corrupt("a block is of another kind", f"expected {kind}, found {found}")
    if flags & _ZSTD:
        body = _decompress(body, size)
    if len(body) != size:
        raise Corrupt("a block's length does not hold", f"it promises {size} bytes and has {len(body)}")
    return body


def newer_format(version: int) -> Unsupported:
    return Unsupported(
        f"the vector store has format {version}",
        f"this version of Penstock reads formats 1 to {FORMAT_VERSION}",
        "open it with a newer Penstock; nothing was changed",
    )


def _flat(part: Array) -> Any:
    return np.ascontiguousarray(part).reshape(-1).view(np.uint8)


def _checksum(header: bytes, parts: Sequence[bytes | Array]) -> int:
    checksum: int = google_crc32c.value(header)
    for part in parts:
        checksum = google_crc32c.extend(checksum, part)
    return checksum


def _decompress(body: memoryview, size: int) -> memoryview:
    if size > _BODY_BYTES_MAX:
        raise Corrupt("a block's length does not hold", f"it promises {size} bytes")
    try:
        return memoryview(zstandard.ZstdDecompressor().decompress(body, max_output_size=size))
    except zstandard.ZstdError as error:
        raise Corrupt("a block cannot be decompressed", str(error)) from error
