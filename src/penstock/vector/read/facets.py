"""How many rows have each value of an attribute: counted over whole columns, in bounded memory.

Counts are exact while an attribute has at most `DISTINCT_MAX` different values. Beyond that the rarest are forgotten
as they come: what is left is told, each with at least its count, and the answer says that it is not exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.blocks import BlockReader, Shelf
from penstock.vector.arrays import Column, compute
from penstock.vector.attributes import Scalar
from penstock.vector.bounds import whole_number
from penstock.vector.filter import Filter, IsNull, check_filter
from penstock.vector.format.content import ColumnBlock
from penstock.vector.format.idset import IdSet
from penstock.vector.format.keys import ROW_FAMILIES, Family
from penstock.vector.format.state import CollectionState
from penstock.vector.read.select import select_rows

__all__ = ["FACET_VALUES_MAX", "FacetCounts", "chosen_rows", "count_values", "facet_of"]

# Values of one answer.
FACET_VALUES_MAX: Final = 1_000
# Different values that are told apart while they are counted: some tens of megabytes of text.
DISTINCT_MAX: Final = 100_000
_BUCKETS_AT_ONCE: Final = 64
_SCHEMA_NAMES: Final = ["value", "count"]


@dataclass(frozen=True, slots=True)
class FacetCounts:
    """The most frequent values of an attribute, each with its rows; of equals, the smaller value first."""

    values: tuple[tuple[Scalar, int], ...]
    # Rows with another value than those, and rows without one.
    other: int = 0
    missing: int = 0
    # Whether counts are exact; else there were too many different values, and these are the least they have.
    exact: bool = True
    # How many different values there are; at least so many where counts are not exact.
    distinct: int = 0


async def chosen_rows(blocks: BlockReader, state: CollectionState, where: Filter | None) -> IdSet:
    """The visible rows that a filter matches, or all; damage is an error, because a count must be whole."""
    state.require(ROW_FAMILIES)
    return state.visible if where is None else await select_rows(blocks, state, where, None)


async def count_values(
    blocks: BlockReader, state: CollectionState, name: str, where: Filter | None, limit: int
) -> FacetCounts:
    """The values that an attribute has in the chosen rows."""
    check_limit(limit)
    check_filter(IsNull(name), state.types)
    chosen = await chosen_rows(blocks, state, where)
    shelf = Shelf(Family.COLUMN, state.attributes[name].number)
    lows = state.directory(shelf).lows.tolist()
    tally = _Tally(state.types[name].arrow)
    for first in range(0, len(lows), _BUCKETS_AT_ONCE):
        stored = await blocks.contents(state, shelf, lows[first : first + _BUCKETS_AT_ONCE], ColumnBlock)
        for content in stored.values():
            tally.add(content.values.filter(pa.array(chosen.contains(content.ids))))
    return tally.facet(limit, missing=len(chosen) - tally.rows)


def facet_of(values: Column, limit: int) -> FacetCounts:
    """The facet of given values; null does not count."""
    check_limit(limit)
    tally = _Tally(values.type)
    tally.add(compute.drop_null(values))
    return tally.facet(limit, missing=values.null_count)


def check_limit(limit: int) -> None:
    whole_number("limit", limit, 1, FACET_VALUES_MAX, f"a facet has 1 to {FACET_VALUES_MAX:,} values")


class _Tally:
    """Values and their counts so far."""

    def __init__(self, kind: pa.DataType) -> None:
        self._counts: pa.Table = pa.table([pa.array([], kind), pa.array([], pa.int64())], names=_SCHEMA_NAMES)
        self._held: list[pa.Table] = []
        self._held_rows = 0
        self.rows = 0
        self._exact = True

    def add(self, values: Column) -> None:
        if not len(values):
            return
        self.rows += len(values)
        counted = compute.value_counts(values)
        parts = [counted.field("values"), counted.field("counts").cast(pa.int64())]
        self._held.append(pa.table(parts, names=_SCHEMA_NAMES))
        self._held_rows += len(counted)
        if self._held_rows > DISTINCT_MAX:
            self._merge()

    def _merge(self) -> None:
        joined = pa.concat_tables([self._counts, *self._held])
        grouped = joined.group_by("value").aggregate([("count", "sum")]).rename_columns(_SCHEMA_NAMES)
        self._held, self._held_rows = [], 0
        if grouped.num_rows > DISTINCT_MAX:
            self._exact = False
            grouped = grouped.take(_order(grouped)[:DISTINCT_MAX])
        self._counts = grouped

    def facet(self, limit: int, missing: int) -> FacetCounts:
        self._merge()
        best = self._counts.take(_order(self._counts)[:limit])
        values: list[Scalar] = best["value"].to_pylist()  # type: ignore[assignment]
        counts: list[int] = best["count"].to_pylist()  # type: ignore[assignment]
        told = tuple(zip(values, counts, strict=True))
        return FacetCounts(told, self.rows - sum(counts), missing, self._exact, self._counts.num_rows)


def _order(counted: pa.Table) -> Column:
    """The most frequent first."""
    keys = [("count", "descending"), ("value", "ascending")]
    order: Column = (
        compute.sort_indices(counted, sort_keys=keys) if counted.num_rows else pa.array(np.empty(0, np.int64))
    )
    return order
