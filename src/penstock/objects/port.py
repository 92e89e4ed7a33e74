"""The object-store port: what every backend promises, and the rules for keys.

A store maps keys to immutable bodies. Each body has a `version`, an opaque text that changes with
every write; `put_if` writes only when the version is still the one that was read, and is the single
primitive on which queues, catalogs and registers are built. All verbs raise the errors of
`penstock.errors` and nothing else: `NotFound`, `Conflict`, `OutcomeUnknown`, `Unavailable`,
`PermissionDenied`, `StorageFull`, `InvalidInput`, `AtCapacity` (an object too large for `get`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from penstock.errors import InvalidInput

__all__ = ["KEY_BYTES_MAX", "Body", "Object", "ObjectMeta", "ObjectStore", "check_key", "check_range"]

Body: TypeAlias = bytes | bytearray | memoryview

# S3, Azure and GCS all stop at 1,024 bytes of UTF-8.
KEY_BYTES_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """What a store knows of an object without reading it."""

    key: str
    size: int
    version: str
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Object:
    """An object as it was read: one body, and the meta of exactly that body."""

    meta: ObjectMeta
    data: bytes


class ObjectStore(Protocol):
    """Keys to bodies. Every success is durable; no reader ever sees a part of a body."""

    @property
    def url(self) -> str:
        """Where this store is, without credentials; used in errors."""
        ...

    async def get(self, key: str) -> Object:
        """The whole object. Refuses one larger than the store's `get_bytes_max` with `AtCapacity`."""
        ...

    async def get_range(self, key: str, start: int, end: int, *, version: str | None = None) -> bytes:
        """Bytes `[start, end)`, clipped at the object's end; `start` past the end is `InvalidInput`.

        With `version`, an object that has changed since raises `Conflict`.
        """
        ...

    async def get_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], *, version: str | None = None
    ) -> list[bytes]:
        """Several ranges of one object, in the order asked."""
        ...

    async def head(self, key: str) -> ObjectMeta:
        """The object's meta without its body."""
        ...

    async def put(self, key: str, data: Body) -> ObjectMeta:
        """Write, replacing whatever is there."""
        ...

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        """Write only if the object is still at `version`, or with None only if there is none.

        `Conflict` means nothing was written. `OutcomeUnknown` means read again: the write is never
        repeated by the store itself, because a repeat of a landed write reports a false conflict.
        """
        ...

    def list(self, prefix: str = "", *, offset: str = "", page_size: int = 1000) -> AsyncIterator[list[ObjectMeta]]:
        """Pages of objects whose key starts with `prefix` and sorts after `offset`, in UTF-8 byte order.

        A prefix is plain text, not a folder: `a/b` also finds `a/bc`.
        """
        ...

    async def delete(self, key: str) -> None:
        """Remove; removing what is not there is success."""
        ...

    async def delete_many(self, keys: Iterable[str]) -> None:
        """Remove all of `keys`, in bulk where the store can."""
        ...

    async def close(self) -> None:
        """Release connections and file handles. Idempotent."""
        ...


def check_key(key: str) -> str:
    """Refuse keys that some backend would read differently, or that could leave a directory."""
    why = _key_fault(key)
    if why:
        raise InvalidInput(f"object key {key[:80]!r} cannot be used", why, "use segments joined by single slashes")
    return key


def _key_fault(key: str) -> str:
    if not key:
        return "it is empty"
    try:
        size = len(key.encode("utf-8"))
    except UnicodeEncodeError:
        return "it has characters that UTF-8 cannot encode"
    if size > KEY_BYTES_MAX:
        return f"it has {size} bytes, over the limit of {KEY_BYTES_MAX}"
    if any(ord(c) < 32 or ord(c) == 127 for c in key):
        return "it has a control character"
    for segment in key.split("/"):
        if segment == "":
            return "it has an empty segment"
        if segment in (".", ".."):
            return f"the segment {segment!r} could leave its folder"
    return ""


def check_range(key: str, start: int, end: int) -> None:
    """Refuse ranges no object could serve."""
    if start < 0 or end < start:
        raise InvalidInput(f"range [{start}, {end}) of {key!r} cannot be read", "it must be 0 <= start <= end")
