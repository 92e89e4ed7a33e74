"""A sorted map of bytes whose moments can be kept: copied when it changes after being shared, not before."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from penstock.keyvalue.port import Entry

__all__ = ["Operation", "Table", "blocks"]

Operation: TypeAlias = tuple[bytes, bytes | None]


class Table:
    """Keys in order, and their values. Whoever holds a shared table sees it unchanged for ever."""

    def __init__(self, values: dict[bytes, bytes] | None = None, keys: list[bytes] | None = None) -> None:
        self._values = values if values is not None else {}
        self._keys = keys if keys is not None else []
        self._shared = False

    def share(self) -> Table:
        """Promise never to change this table again."""
        self._shared = True
        return self

    def changed(self, operations: Iterable[Operation]) -> Table:
        """The table with the operations applied: this one if nobody shares it, else a copy."""
        table = Table(dict(self._values), list(self._keys)) if self._shared else self
        for key, value in operations:
            table._set(key, value)
        return table

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def entries(self, start: bytes, end: bytes | None, *, reverse: bool) -> Iterator[Entry]:
        """Entries with `start <= key < end`, either way round."""
        low = bisect_left(self._keys, start)
        high = len(self._keys) if end is None else max(low, bisect_left(self._keys, end))
        places = range(high - 1, low - 1, -1) if reverse else range(low, high)
        return ((self._keys[place], self._values[self._keys[place]]) for place in places)

    def _set(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            if self._values.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]
            return
        if key not in self._values:
            insort(self._keys, key)
        self._values[key] = value


def blocks(entries: Iterable[Entry], block_bytes: int) -> Iterator[list[Entry]]:
    """Entries gathered until a block holds at least `block_bytes`; the last may hold less."""
    block: list[Entry] = []
    size = 0
    for entry in entries:
        block.append(entry)
        size += len(entry[0]) + len(entry[1])
        if size >= block_bytes:
            yield block
            block, size = [], 0
    if block:
        yield block
