"""Which series of each hour satisfy matchers, kept for the next query: they change only when a period gets new series."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyroaring

from penstock.blocks import BlockReader
from penstock.errors import AtCapacity
from penstock.timeseries.arrays import Ids, Indices
from penstock.timeseries.format.state import TenantState
from penstock.timeseries.promql.labels import Labels
from penstock.timeseries.read.labels import present_series
from penstock.timeseries.read.matching import LabelTest, matching_series

__all__ = ["Postings", "SelectedSeries", "check_bound", "find_postings", "series_name"]

# Periods whose index is read in one go: what a query over years holds in memory at once.
_PERIODS_AT_ONCE: Final = 48
# Memory of an entry beside its arrays, and of the labels of a series, about.
_ENTRY_BYTES: Final = 512
_LABELS_BYTES: Final = 600


@dataclass(frozen=True, slots=True)
class Postings:
    """The series of a period that satisfy matchers. Not to be changed."""

    ids: pyroaring.BitMap

    @property
    def size_bytes(self) -> int:
        # A container of a bitmap has at most 8 KiB, and two bytes an id.
        return _ENTRY_BYTES + 2 * len(self.ids)


@dataclass(frozen=True, slots=True)
class SelectedSeries:
    """The series of some hours, each once, in the order of labels; and for each hour its ids and their numbers."""

    labels: list[Labels]
    hours: Mapping[int, tuple[Ids, Indices]]

    @property
    def size_bytes(self) -> int:
        arrays = sum(ids.nbytes + numbers.nbytes for ids, numbers in self.hours.values())
        return _ENTRY_BYTES * (1 + len(self.hours)) + arrays + _LABELS_BYTES * len(self.labels)


def series_name(state: TenantState, hours: Sequence[int], tests: Sequence[LabelTest]) -> Hashable:
    """What found series are kept under: it changes when one of the hours gets new ones."""
    versions = tuple((hour, state.series_version(hour)) for hour in hours)
    return state.prefix, versions, tuple(test.matcher for test in tests)


async def find_postings(
    blocks: BlockReader, state: TenantState, hours: Sequence[int], tests: Sequence[LabelTest], series_max: int
) -> dict[int, Ids]:
    """For each hour the ids of the series that satisfy all matchers, in order."""
    periods = list(dict.fromkeys(map(state.period, hours)))
    # Neither needs the other: a bucket is waited for once.
    present, matching = await asyncio.gather(
        present_series(blocks, state, hours), _matching_periods(blocks, state, periods, tests)
    )
    found: dict[int, Ids] = {}
    for hour in hours:
        wanted, own = matching[state.period(hour)], present[hour]
        if own is not None:
            wanted = wanted & own
        check_bound("series", len(wanted), series_max)
        found[hour] = np.array(wanted.to_array(), np.uint32)
    return found


async def _matching_periods(
    blocks: BlockReader, state: TenantState, periods: Sequence[int], tests: Sequence[LabelTest]
) -> dict[int, pyroaring.BitMap]:
    matchers = tuple(test.matcher for test in tests)
    names = {period: (state.prefix, period, state.period_version(period), matchers, Postings) for period in periods}
    found: dict[int, pyroaring.BitMap] = {}
    for period in periods:
        entry = blocks.cache.get(names[period], Postings)
        if entry is not None and entry.block is not None:
            found[period] = entry.block.ids
    missing = [period for period in periods if period not in found]
    for first in range(0, len(missing), _PERIODS_AT_ONCE):
        for period, ids in (
            await matching_series(blocks, state, missing[first : first + _PERIODS_AT_ONCE], tests)
        ).items():
            found[period] = ids
            blocks.cache.put(names[period], Postings(ids))
    return found


def check_bound(what: str, found: int, most: int) -> None:
    """Refuse a query that selects more than it may."""
    if found > most:
        raise AtCapacity(
            f"the query selects too many {what}",
            f"it found {found} so far, and may read {most}",
            f"select fewer, or raise engine.{what}_max",
        )
