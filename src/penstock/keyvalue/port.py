"""The ordered key-value port: atomic write batches, snapshots, and durability that is asked for by name.

A store maps byte keys to byte values in key order. A write is visible to its own writer at once and
durable when its handle says so; the two are different events, and callers choose which to wait for.
Values are meant to be blocks of 32 to 256 KB (Arrow or codec bytes), never a row a key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias

from penstock.errors import InvalidInput

__all__ = ["Entry", "KeyValue", "Reader", "Snapshot", "WriteBatch", "WriteHandle", "prefix_end"]

Entry: TypeAlias = tuple[bytes, bytes]


class WriteBatch:
    """Puts and deletes that land together or not at all. A later operation on a key replaces an earlier one."""

    def __init__(self) -> None:
        self._operations: dict[bytes, bytes | None] = {}
        self.size_bytes = 0

    def put(self, key: bytes, value: bytes) -> WriteBatch:
        return self._set(key, value)

    def delete(self, key: bytes) -> WriteBatch:
        return self._set(key, None)

    def operations(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Keys with their new value, or None for a delete, in the order first named."""
        return iter(self._operations.items())

    def __len__(self) -> int:
        return len(self._operations)

    def _set(self, key: bytes, value: bytes | None) -> WriteBatch:
        if not key:
            raise InvalidInput("a key in a write batch is empty", "every key needs at least one byte")
        replaced = self._operations.get(key)
        known = key in self._operations
        self.size_bytes += len(value or b"") - len(replaced or b"") + (0 if known else len(key))
        self._operations[key] = value
        return self


class WriteHandle(Protocol):
    """A write that was applied in memory."""

    async def durable(self) -> None:
        """Return once the write would survive the loss of this machine's memory (and power, on a directory)."""
        ...


class Reader(Protocol):
    """What can be asked of a store, a snapshot or a follower."""

    async def get(self, key: bytes) -> bytes | None: ...

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values in the order of `keys`."""
        ...

    def scan(
        self, start: bytes = b"", end: bytes | None = None, *, reverse: bool = False, block_bytes: int = 1 << 20
    ) -> AsyncIterator[list[Entry]]:
        """Entries with `start <= key < end` in key order, in blocks of about `block_bytes`."""
        ...

    def scan_prefix(
        self, prefix: bytes, *, reverse: bool = False, block_bytes: int = 1 << 20
    ) -> AsyncIterator[list[Entry]]:
        """Entries whose key starts with `prefix`, in key order, in blocks."""
        ...

    async def close(self) -> None:
        """Release what is held. Idempotent."""
        ...


class Snapshot(Reader, Protocol):
    """A view of one moment; later writes do not show."""


class KeyValue(Reader, Protocol):
    """The single writer of a store. A second writer fences the first, whose next write raises `Fenced`."""

    async def write(self, batch: WriteBatch) -> WriteHandle:
        """Apply a batch atomically; the handle tells when it is durable."""
        ...

    async def snapshot(self) -> Snapshot: ...

    async def flush(self) -> None:
        """Return once everything written so far is durable."""
        ...


def prefix_end(prefix: bytes) -> bytes | None:
    """The first key after every key that starts with `prefix`; None when there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


def checked(keys: Iterable[bytes]) -> list[bytes]:
    """Refuse empty keys, which the store cannot hold."""
    listed = list(keys)
    if any(not key for key in listed):
        raise InvalidInput("a key to read is empty", "every key needs at least one byte")
    return listed
