"""Work of known sizes: in parts that are no larger than they may be, and spread over workers evenly. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["parts_of", "spread"]

T = TypeVar("T")


def parts_of(items: Sequence[T], sizes: Sequence[int], most: int) -> list[list[T]]:
    """Items in their order, as many together as are no larger than `most`; at least one."""
    parts: list[list[T]] = []
    total = 0
    for item, size in zip(items, sizes, strict=True):
        if not parts or total + size > most:
            parts.append([])
            total = 0
        parts[-1].append(item)
        total += size
    return parts


def spread(items: Sequence[T], sizes: Sequence[int], workers: int) -> list[list[T]]:
    """Distribute items, the largest first, each to the smallest share. No share stays empty, and no item is split."""
    loads = [(0, worker) for worker in range(min(workers, len(items)))]
    parts: list[list[T]] = [[] for _ in loads]
    for place in sorted(range(len(items)), key=lambda place: (-sizes[place], place)):
        load, worker = loads[0]
        parts[worker].append(items[place])
        # An item of no size still costs a worker something.
        heapq.heapreplace(loads, (load + max(1, sizes[place]), worker))
    return parts
