"""Which series of a period satisfy matchers: set operations on the bitmaps of the inverted index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyroaring

from penstock.blocks import BlockReader
from penstock.timeseries.arrays import Bools, Column
from penstock.timeseries.format.index_block import IndexBlock
from penstock.timeseries.format.keys import label_key, name_range
from penstock.timeseries.format.state import INDEX, LABELS, TenantState
from penstock.timeseries.offload import offload
from penstock.timeseries.promql import Matcher, MatchKind
from penstock.timeseries.read.labels import present_series

__all__ = ["LabelTest", "known_labels", "label_tests", "matching_series", "name_blocks"]


_NONE: Final = pyroaring.BitMap()
# Stored bytes of index blocks that are read in one go; unpacked they are several times as large.
_BYTES_AT_ONCE: Final = 16 << 20
# A few values are asked for one by one and their answers kept; many are matched as a column.
_ASKED_ONE_BY_ONE: Final = 1_000


class LabelTest:
    """A matcher ready for use: it is asked once for each value, however many hours have it."""

    def __init__(self, matcher: Matcher) -> None:
        self.matcher = matcher
        self._wanted: Callable[[str], bool] = matcher.predicate()
        self._known: dict[str, bool] = {}
        # Whether series without the label are wanted.
        self.absent = self(value="")

    def __call__(self, value: str) -> bool:
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = self._wanted(value)
        return found

    def telling(self, values: Column) -> Bools:
        """Which values have series that are not as those without the label."""
        wanted: Bools
        if len(values) <= _ASKED_ONE_BY_ONE:
            wanted = np.fromiter(map(self, values.to_pylist()), np.bool_, len(values))
        else:
            wanted = self.matcher.wanted(values)
        return ~wanted if self.absent else wanted


def label_tests(matchers: Iterable[Matcher]) -> list[LabelTest]:
    """The matchers in the order in which they are cheapest: exact ones leave the others less to do."""
    return [LabelTest(matcher) for matcher in sorted(matchers, key=lambda matcher: matcher.kind is not MatchKind.EQUAL)]


async def matching_series(
    blocks: BlockReader, state: TenantState, periods: Sequence[int], tests: Sequence[LabelTest]
) -> dict[int, pyroaring.BitMap]:
    """For each period the series that satisfy all matchers. Blocks of all periods are read together."""
    lows = {(period, test): _lows(state, period, test.matcher) for period in periods for test in tests}
    # The series of each matcher that are not as those without its label.
    told = {asked: pyroaring.BitMap() for asked in lows}
    for group in _groups(state, dict.fromkeys(low for some in lows.values() for low in some)):
        found = await blocks.contents(state, INDEX, group, IndexBlock)
        rows = sum(map(len, found.values()))
        await offload(
            rows, _tell, told, {asked: [found[low] for low in own if low in found] for asked, own in lows.items()}
        )
    series: dict[int, pyroaring.BitMap] = {}
    for period in periods:
        everything = pyroaring.BitMap()
        everything.add_range(0, state.rows(LABELS, period))
        for test in tests:
            having = told[period, test]
            everything = everything - having if test.absent else everything & having
        series[period] = everything
    return series


def _groups(state: TenantState, lows: Iterable[int]) -> Iterator[list[int]]:
    """Blocks that are read in one go, bounded by their bytes: a label may have as many values as there are series."""
    directory = state.directory(INDEX)
    group: list[int] = []
    size = 0
    for low in lows:
        group.append(low)
        size += int(directory.bucket(low)["bytes"].sum())
        if size >= _BYTES_AT_ONCE:
            yield group
            group, size = [], 0
    if group:
        yield group


def _tell(
    told: dict[tuple[int, LabelTest], pyroaring.BitMap], found: Mapping[tuple[int, LabelTest], list[IndexBlock]]
) -> None:
    for asked, index in found.items():
        matcher = asked[1].matcher
        for block in index:
            if _is_exact(matcher):
                some = [block.series(matcher.name, matcher.value) or _NONE]
            else:
                some = block.series_where(matcher.name, asked[1].telling)
            if some:
                told[asked] |= some[0] if len(some) == 1 else pyroaring.BitMap.union(*some)


def _lows(state: TenantState, period: int, matcher: Matcher) -> list[int]:
    """The blocks of a period's index that may know labels which a matcher asks for."""
    lows = state.lows(INDEX, period)
    if not len(lows):
        return []
    if _is_exact(matcher):
        keys = np.array([label_key(period, matcher.name, matcher.value)], np.uint64)
        return [int(lows[state.owners(INDEX, period, keys)[0]])]
    first, end = name_range(period, matcher.name)
    places = state.owners(INDEX, period, np.array([first, end - 1], np.uint64))
    found: list[int] = lows[places[0] : places[1] + 1].tolist()
    return found


def _is_exact(matcher: Matcher) -> bool:
    """Whether one label decides."""
    return matcher.kind in (MatchKind.EQUAL, MatchKind.NOT_EQUAL) and matcher.value != ""


async def name_blocks(blocks: BlockReader, state: TenantState, period: int, name: str | None) -> list[IndexBlock]:
    """The blocks of a period that may know labels of a name, or of any."""
    lows = state.lows(INDEX, period)
    if not len(lows):
        return []
    if name is not None:
        first, end = name_range(period, name)
        places = state.owners(INDEX, period, np.array([first, end - 1], np.uint64))
        lows = lows[places[0] : places[1] + 1]
    return list((await blocks.contents(state, INDEX, lows.tolist(), IndexBlock)).values())


async def known_labels(
    blocks: BlockReader, state: TenantState, hours: Sequence[int], name: str | None
) -> dict[str, set[str]]:
    """The labels that series of some hours have: values by name, of one name or of all."""
    present = await present_series(blocks, state, hours)
    found: dict[str, set[str]] = {}
    for period in dict.fromkeys(map(state.period, hours)):
        some = [present[hour] for hour in hours if state.period(hour) == period]
        wanted = _NONE.union(*(ids for ids in some if ids is not None))
        everything = None in some or len(wanted) == state.rows(LABELS, period)
        for block in await name_blocks(blocks, state, period, name):
            for own in block.label_names() if name is None else (name,):
                values = block.label_values(own)
                if not everything:
                    values = [value for value in values if wanted.intersect(block.series(own, value) or _NONE)]
                if values:
                    found.setdefault(own, set()).update(values)
    return found
