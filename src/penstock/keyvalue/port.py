"""The ordered key-value port: atomic write batches, snapshots, and durability that is asked for by name.

A store maps byte keys to byte values in key order. A write is visible to its own writer at once and
durable when its handle says so; the two are different events, and callers choose which to wait for.
Values are meant to be blocks of 32 to 256 KB (Arrow or codec bytes), never a row a key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias

from penstock.errors import InvalidInput

__all__ = [
    "BLOCK_BYTES",
    "KEY_BYTES_MAX",
    "VALUE_BYTES_MAX",
    "DurabilityHandle",
    "Entry",
    "KeyValue",
    "Reader",
    "Snapshot",
    "WriteBatch",
    "check_scan",
    "checked",
    "prefix_end",
]

Entry: TypeAlias = tuple[bytes, bytes]

# Keys are repeated in every index and filter of the store: a longer one is a value in disguise.
KEY_BYTES_MAX: Final = 65_535
# A value travels in one PUT of the log, and the binding counts its bytes in a signed 32-bit number.
VALUE_BYTES_MAX: Final = 64 << 20
# What a scan hands over at a time: several block-sized values, and little memory.
BLOCK_BYTES: Final = 1 << 20


class WriteBatch:
    """Puts and deletes that land together or not at all. A later operation on a key replaces an earlier one."""

    def __init__(self) -> None:
        self._operations: dict[bytes, bytes | None] = {}
        self.size_bytes = 0

    def put(self, key: bytes, value: bytes) -> WriteBatch:
        _check_value(key, value)
        return self._set(key, value)

    def delete(self, key: bytes) -> WriteBatch:
        return self._set(key, None)

    def operations(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Keys with their new value, or None for a delete, in the order first named."""
        return iter(self._operations.items())

    def __len__(self) -> int:
        return len(self._operations)

    def _set(self, key: bytes, value: bytes | None) -> WriteBatch:
        _check_key(key, "a key in a write batch")
        replaced = self._operations.get(key)
        known = key in self._operations
        self.size_bytes += len(value or b"") - len(replaced or b"") + (0 if known else len(key))
        self._operations[key] = value
        return self


class DurabilityHandle(Protocol):
    """A write that was applied in memory."""

    async def durable(self) -> None:
        """Return once the write would survive the loss of this machine's memory (and power, on a directory).

        `Fenced` means the write is not there and never will be. `OutcomeUnknown` means the store failed
        under the write: open it again and read, then decide. Waiting may be given up and asked for again.
        """
        ...


class Reader(Protocol):
    """What can be asked of a store, a snapshot or a follower."""

    async def get(self, key: bytes) -> bytes | None: ...

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values in the order of `keys`."""
        ...

    def scan(
        self, start: bytes = b"", end: bytes | None = None, *, reverse: bool = False, block_bytes: int = BLOCK_BYTES
    ) -> AsyncIterator[list[Entry]]:
        """Entries with `start <= key < end` in key order, in blocks of about `block_bytes`.

        A scan shows the moment its first block was asked for, whatever is written while it runs.
        """
        ...

    def scan_prefix(
        self, prefix: bytes, *, reverse: bool = False, block_bytes: int = BLOCK_BYTES
    ) -> AsyncIterator[list[Entry]]:
        """Entries whose key starts with `prefix`, in key order, in blocks."""
        ...

    async def close(self) -> None:
        """Release what is held. Idempotent; every later call but `close` raises `Closed`."""
        ...


class Snapshot(Reader, Protocol):
    """A view of one moment; later writes do not show. It lives no longer than its store is open."""


class KeyValue(Reader, Protocol):
    """The single writer of a store. A second writer fences the first, wherever it runs.

    The first may not notice at once: a write it still accepts then raises `Fenced` from `durable()`,
    and so does every later call. Nothing a fenced writer wrote after the second one opened is ever seen.
    `close` flushes, and raises only when a write is lost by it that nobody was told of.
    """

    async def write(self, batch: WriteBatch) -> DurabilityHandle:
        """Apply a batch atomically; the handle tells when it is durable. An empty batch is durable already.

        A call that is cancelled has written the whole batch or nothing of it.
        """
        ...

    async def snapshot(self) -> Snapshot: ...

    async def flush(self) -> None:
        """Return once everything written so far is durable."""
        ...


def prefix_end(prefix: bytes) -> bytes | None:
    """The first key after every key that starts with `prefix`; None if there is no such key."""
    _check_bytes(prefix, "a prefix to scan")
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


def checked(keys: Iterable[bytes]) -> list[bytes]:
    """Refuse keys which no store can hold."""
    listed = list(keys)
    for key in listed:
        _check_key(key, "a key to read")
    return listed


def check_scan(start: bytes, end: bytes | None, block_bytes: int) -> None:
    """Refuse a scan between things that are no keys, or whose blocks could hold nothing."""
    _check_bytes(start, "the start of a scan")
    if end is not None:
        _check_bytes(end, "the end of a scan")
    if block_bytes < 1:
        why = "a block needs at least one byte"
        raise InvalidInput(f"a scan in blocks of {block_bytes} bytes", why, f"omit it for {BLOCK_BYTES}")


def _check_key(key: bytes, name: str) -> None:
    _check_bytes(key, name)
    if not key:
        raise InvalidInput(f"{name} is empty", "every key needs at least one byte", "give it a name")
    if len(key) > KEY_BYTES_MAX:
        what = f"{name} has {len(key)} bytes: {key[:40]!r}…"
        raise InvalidInput(what, f"the limit is {KEY_BYTES_MAX}", "put long data into the value")


def _check_bytes(key: bytes, name: str) -> None:
    # Types are checked here because a text key fails deep inside the binding, without naming itself.
    if not isinstance(key, bytes):
        raise InvalidInput(f"{name} is {type(key).__name__}: {key!r:.80}", "keys are bytes", "encode it")


def _check_value(key: bytes, value: bytes) -> None:
    if not isinstance(value, bytes):
        raise InvalidInput(f"the value of {key!r:.80} is {type(value).__name__}", "values are bytes", "encode it")
    if len(value) > VALUE_BYTES_MAX:
        raise InvalidInput(
            f"the value of {key!r:.80} has {len(value)} bytes",
            f"the limit is {VALUE_BYTES_MAX}",
            "split it into blocks of 32 to 256 KB",
        )
