"""Writes that were accepted and that no flush has taken yet. Pure.

They merge into one open delta. A reader that asks for a view freezes it and a fresh one is opened, so
that views are cheap, need no lock and never change. Frozen deltas are merged like the digits of a binary
counter: n views between two flushes leave about log n of them, and each write is merged about log n times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.coordinator.protocols import Delta

__all__ = ["PendingDeltas"]

D = TypeVar("D", bound=Delta)


class PendingDeltas(Generic[D]):
    """Accepted writes in their order: frozen deltas, oldest first, and one that still takes writes."""

    def __init__(self, empty: Callable[[], D]) -> None:
        self._empty = empty
        self._open: D | None = None
        self._open_writes = 0
        self._frozen: list[tuple[D, int]] = []
        self.bytes = 0
        self.writes = 0

    def merge(self, delta: D, size_bytes: int) -> None:
        """Take a write in. The caller's delta is copied from, never kept."""
        # Only a merge that returned counts: one that raises leaves nothing behind.
        target = self._open if self._open is not None else self._empty()
        target.merge(delta)
        self._open = target
        self._open_writes += 1
        self.bytes += size_bytes
        self.writes += 1

    def freeze(self) -> list[D]:
        """Everything here as deltas that never change again, oldest first."""
        if self._open is not None:
            self._frozen.append((self._open, self._open_writes))
            self._open, self._open_writes = None, 0
        while len(self._frozen) > 1 and self._frozen[-2][1] <= self._frozen[-1][1]:
            (earlier, earlier_writes), (later, later_writes) = self._frozen[-2:]
            self._frozen[-2:] = [(self._merged([earlier, later]), earlier_writes + later_writes)]
        return [delta for delta, _ in self._frozen]

    def take(self) -> D:
        """Everything here as one delta, leaving nothing."""
        parts = [delta for delta, _ in self._frozen]
        if self._open is not None:
            parts.append(self._open)
        # Merged before anything is let go of: a delta that fails to merge with another must not lose both.
        whole = parts[0] if len(parts) == 1 else self._merged(parts)
        self._open, self._open_writes, self._frozen = None, 0, []
        self.bytes = self.writes = 0
        return whole

    def _merged(self, parts: list[D]) -> D:
        # Into a fresh one: the parts may be in a view.
        whole = self._empty()
        for part in parts:
            whole.merge(part)
        return whole
