"""The object-store port: what every backend promises, and the rules for keys.

A store maps keys to immutable bodies. Each body has a `version`, an opaque text that changes with
every write; `put_if` writes only when the version is still the one that was read, and is the single
primitive on which queues, catalogs and registers are built. All verbs raise the errors of
`penstock.errors` and nothing else: `NotFound`, `Conflict`, `OutcomeUnknown`, `Unavailable`,
`PermissionDenied`, `StorageFull`, `InvalidInput`, `AtCapacity` (an object too large for `get`).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Final, Protocol

from penstock.disk import Body
from penstock.errors import InvalidInput

__all__ = [
    "KEY_BYTES_MAX",
    "RANGE_END_MAX",
    "RESERVED_FOLDER",
    "Body",
    "Object",
    "ObjectMeta",
    "ObjectStore",
    "check_key",
    "check_keys",
    "check_range",
]

# S3, Azure and GCS all stop at 1,024 bytes of UTF-8.
KEY_BYTES_MAX: Final = 1024

# The last offset that files and services can name: a range "to the end" may be written with it.
RANGE_END_MAX: Final = 2**63 - 1

# Where a directory keeps its locks and half-written files, and a bucket its probes; reserved in every
# store, so that objects can be copied from any one to any other.
RESERVED_FOLDER: Final = ".penstock"

# Services list and delete in XML 1.0, which cannot carry these: one such key would break every listing.
_NOT_IN_XML: Final = re.compile(r"[\x00-\x1f\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """The metadata of an object."""

    key: str
    size: int
    version: str
    modified_ms: int
    # What its writer said of it, `x-amz-meta-*` and the like, by name; told by `get` and `head` of a service alone.
    said: tuple[tuple[str, str], ...] = field(default=(), compare=False)


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

    async def get_durable(self, key: str) -> Object:
        """The whole object, once it is sure to survive a power loss: what a proof may rest on.

        In a service whatever can be read is durable. In a directory a file is seen before it is, and one
        that this store cannot vouch for is written anew, with a new version. `OutcomeUnknown`: that failed.
        """
        ...

    async def get_if_changed(self, key: str, *, version: str) -> Object | None:
        """The whole object, or None while it is still at `version`: then nothing of its body is read or sent."""
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
        """Remove all of `keys`, in bulk where the store can. One key alone, not in a list, is `InvalidInput`."""
        ...

    async def close(self) -> None:
        """Release connections and file handles. Idempotent."""
        ...


def check_key(key: str) -> str:
    """Refuse keys that some backend would read differently, or that could leave a directory."""
    if not isinstance(key, str):
        raise InvalidInput(
            f"object key {key!r} cannot be used", f"it is of type {type(key).__name__}, not text", "give it as text"
        )
    why = _key_fault(key)
    if why:
        raise InvalidInput(f"object key {key[:80]!r} cannot be used", why, "use segments joined by single slashes")
    return key


def check_keys(keys: Iterable[str]) -> list[str]:
    """Refuse all of them for one that cannot be used, so that nothing is half-done."""
    if isinstance(keys, str):
        # A text is a sequence of its letters, and each of them is a key that may well exist.
        why = "it is one text, and its letters would be taken for keys"
        raise InvalidInput(f"keys {keys[:80]!r} cannot be used", why, "put the key into a list")
    if not isinstance(keys, Iterable):
        raise InvalidInput(f"keys {keys!r:.80} cannot be used", "they are no list of keys", "put the key into a list")
    return [check_key(key) for key in keys]


def check_range(key: str, start: int, end: int) -> None:
    """Refuse ranges no object could serve."""
    what = f"range [{start}, {end}) of {key!r} cannot be read"
    try:
        fits = 0 <= index(start) <= index(end) <= RANGE_END_MAX
    except TypeError as error:
        raise InvalidInput(what, "its ends are not whole numbers", "count in bytes") from error
    if not fits:
        raise InvalidInput(what, f"it must be 0 <= start <= end <= {RANGE_END_MAX}", "correct the ends")


def _key_fault(key: str) -> str:
    try:
        size = len(key.encode("utf-8"))
    except UnicodeEncodeError:
        return "it has characters that UTF-8 cannot encode"
    if size > KEY_BYTES_MAX:
        return f"it has {size} bytes, over the limit of {KEY_BYTES_MAX}"
    if "\x7f" in key or _NOT_IN_XML.search(key):
        return "it has a control character, or one that XML cannot carry"
    if "\\" in key:
        return "it has a backslash, which some servers turn into a slash"
    return _segment_fault(key.split("/"))


def _segment_fault(segments: Sequence[str]) -> str:
    if "" in segments:
        return "it is empty" if len(segments) == 1 else "it has an empty segment"
    for segment in segments:
        if segment in (".", ".."):
            return f"the segment {segment!r} could leave its folder"
    return f"the folder {RESERVED_FOLDER!r} belongs to the store itself" if segments[0] == RESERVED_FOLDER else ""
