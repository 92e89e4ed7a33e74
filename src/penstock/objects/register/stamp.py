"""The format of registers that have none of their own: a payload behind a codec, with its proof beside it.

Every body says which writers committed last and with which attempt, so that a writer whose answer was
lost finds out by reading. The table is bounded: once it is full, a writer that is not in it cannot
tell any more, and the outcome stays unknown rather than guessed. The newest stamp is also the nonce
that keeps bodies apart. Bytes: `docs/format/register.md`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

import google_crc32c

from penstock.errors import Corrupt, InvalidInput, Unsupported
from penstock.ids import is_ulid
from penstock.objects.register.format import Token

__all__ = ["BytesCodec", "Codec", "Stamped", "StampedFormat"]

P = TypeVar("P")

MAGIC: Final = b"PNRG"
VERSION: Final = 1
# Writers that may commit between a lost answer and the re-read before the proof is gone. A full table
# has 4.3 KB, which costs nothing beside a request.
STAMPS_MAX: Final = 128
# The u64 of the wire; a fence raised that often has met a bug, not a user.
FENCE_MAX: Final = (1 << 64) - 1

_HEAD: Final = struct.Struct("<4sHHQQ")  # magic, version, count of stamps, fence, seq
_STAMP: Final = struct.Struct("<26sQ")  # writer (a ULID), number of its last attempt
_CRC: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Stamped(Generic[P]):
    """A payload with its fence, its place in the object's history, and the last attempt of each recent writer."""

    payload: P
    fence: int = 0
    seq: int = 0
    stamps: bytes = b""  # the table as it lies on the wire, the newest last: only ever searched and spliced

    def map(self, change: Callable[[P], P]) -> Stamped[P]:
        """This with the payload changed; this very object if the change returns the very payload."""
        payload = change(self.payload)
        return self if payload is self.payload else replace(self, payload=payload)


class Codec(Protocol[P]):
    """A payload to bytes and back."""

    def empty(self) -> P: ...

    def encode(self, payload: P) -> bytes: ...

    def decode(self, data: bytes) -> P: ...


class BytesCodec:
    """Bytes as they are."""

    def empty(self) -> bytes:
        return b""

    def encode(self, payload: bytes) -> bytes:
        return payload

    def decode(self, data: bytes) -> bytes:
        return data


class StampedFormat(Generic[P]):
    """`penstock.objects.RegisterFormat` for any payload: `register.update(lambda value: value.map(change))`."""

    def __init__(self, codec: Codec[P]) -> None:
        self._codec = codec

    def empty(self) -> Stamped[P]:
        return Stamped(self._codec.empty())

    def encode(self, value: Stamped[P]) -> bytes:
        head = _HEAD.pack(MAGIC, VERSION, len(value.stamps) // _STAMP.size, value.fence, value.seq)
        body = b"".join((head, value.stamps, self._codec.encode(value.payload)))
        return body + _CRC.pack(google_crc32c.value(body))

    def decode(self, body: bytes) -> Stamped[P]:
        count, fence, seq = _head(body)
        end = _HEAD.size + count * _STAMP.size
        if end > len(body) - _CRC.size:
            raise Corrupt("a register body is torn", f"{count} stamps do not fit its {len(body)} bytes")
        return Stamped(self._codec.decode(body[end : -_CRC.size]), fence, seq, body[_HEAD.size : end])

    def fence(self, value: Stamped[P]) -> int:
        return value.fence

    def with_fence(self, value: Stamped[P], fence: int) -> Stamped[P]:
        return replace(value, fence=fence)

    def next_fence(self, fence: int) -> int:
        if fence >= FENCE_MAX:
            raise InvalidInput(f"fence {fence} cannot be raised", "it is the largest that fits 64 bits")
        return fence + 1

    def stamp(self, value: Stamped[P], token: Token) -> Stamped[P]:
        table, name = value.stamps, _name(token.writer)
        at = _place(table, name)
        others = table if at is None else table[:at] + table[at + _STAMP.size :]
        newest = _STAMP.pack(name, token.number)
        return replace(value, seq=value.seq + 1, stamps=(others + newest)[-STAMPS_MAX * _STAMP.size :])

    def landed(self, value: Stamped[P], token: Token) -> bool | None:
        at = _place(value.stamps, _name(token.writer))
        if at is None:
            # A table with room has never forgotten anybody.
            return None if len(value.stamps) >= STAMPS_MAX * _STAMP.size else False
        _, number = _STAMP.unpack_from(value.stamps, at)
        # A number above ours would mean that this attempt was settled long ago.
        return None if number > token.number else bool(number == token.number)


def _head(body: bytes) -> tuple[int, int, int]:
    """Check the frame; the count of stamps, the fence, the seq."""
    if len(body) < _HEAD.size + _CRC.size:
        raise Corrupt(f"a register body of {len(body)} bytes", f"the minimum is {_HEAD.size + _CRC.size}")
    magic, version, count, fence, seq = _HEAD.unpack_from(body)
    if magic != MAGIC:
        raise Corrupt("not a stamped register", f"it begins with {magic!r} instead of {MAGIC!r}")
    if version != VERSION:
        raise Unsupported(f"version {version} of the stamped register", f"this release reads version {VERSION}")
    (told,) = _CRC.unpack_from(body, len(body) - _CRC.size)
    found = google_crc32c.value(body[: -_CRC.size])
    if told != found:
        raise Corrupt("a register body has a wrong checksum", f"it says {told:08x}, and its bytes give {found:08x}")
    return count, fence, seq


def _name(writer: str) -> bytes:
    if not is_ulid(writer):
        raise InvalidInput(f"writer {writer!r} cannot be stamped", "a writer is named by a ULID")
    return writer.encode()


def _place(table: bytes, name: bytes) -> int | None:
    """Where the writer's stamp begins. A match that straddles two stamps is none."""
    at = table.find(name)
    while at > 0 and at % _STAMP.size:
        at = table.find(name, at + 1)
    return None if at < 0 else at
