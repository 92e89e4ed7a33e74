"""Work of known sizes, spread over workers so that none has much more than another. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["spread"]

T = TypeVar("T")


def spread(items: Sequence[T], sizes: Sequence[int], workers: int) -> list[list[T]]:
    """The largest first, each to whoever has least; nobody is left with nothing, and no item is split."""
    loads = [(0, worker) for worker in range(min(workers, len(items)))]
    parts: list[list[T]] = [[] for _ in loads]
    for place in sorted(range(len(items)), key=lambda place: (-sizes[place], place)):
        load, worker = loads[0]
        parts[worker].append(items[place])
        # An item of no size still costs a worker something.
        heapq.heapreplace(loads, (load + max(1, sizes[place]), worker))
    return parts
