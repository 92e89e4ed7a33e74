"""What a write counts for, and a write of more samples than the buffer holds as several that fit.

Only a write of one batch is split: writing samples again is the same write, so whoever repeats a write whose pieces were
taken in part ends with what one write would have left. A source position goes with the last piece and is durable after
all others. Batches that were gathered to be flushed together are never taken apart.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from dataclasses import replace
from typing import Final

from penstock.timeseries.operations import SampleChange, TenantSamples
from penstock.timeseries.series_table import SeriesTable

__all__ = ["CountedTables", "pieces_of"]

_TABLES_MAX: Final = 1024


class CountedTables:
    """Tables of series that recent writes had: whoever writes with one again holds no more memory for it."""

    def __init__(self) -> None:
        self._tables: OrderedDict[int, weakref.ref[SeriesTable]] = OrderedDict()

    def counted(self, change: SampleChange) -> SampleChange:
        """The change with a note at each batch whose table was counted before."""
        return replace(change, operations=tuple(self._noted(operation) for operation in change.operations))

    def _noted(self, operation: object) -> TenantSamples:
        if not isinstance(operation, TenantSamples):
            return operation  # type: ignore[return-value] # other operations have no table
        table = operation.batch.table
        known = self._tables.get(id(table))
        if known is not None and known() is table:
            self._tables.move_to_end(id(table))
            return replace(operation, is_table_counted=True)
        self._tables[id(table)] = weakref.ref(table)
        while len(self._tables) > _TABLES_MAX:
            self._tables.popitem(last=False)
        return operation


def pieces_of(change: SampleChange, bytes_max: int) -> list[SampleChange]:
    """Changes of at most about `bytes_max` bytes that do the same in their order; the change itself where it fits."""
    if change.size_bytes <= bytes_max or len(change.operations) != 1:
        return [change]
    (operation,) = change.operations
    if not isinstance(operation, TenantSamples) or len(operation.batch) < 2:
        return [change]
    count = min(len(operation.batch), -(-operation.batch.samples_bytes // bytes_max))
    size = -(-len(operation.batch) // max(count, 1))
    cuts = [operation.batch.take(slice(first, first + size)) for first in range(0, len(operation.batch), size)]
    pieces = [replace(operation, batch=cut, is_table_counted=place > 0) for place, cut in enumerate(cuts)]
    changes = [replace(change, operations=(piece,), source=None, position=None) for piece in pieces[:-1]]
    return [*changes, replace(change, operations=(pieces[-1],))]
