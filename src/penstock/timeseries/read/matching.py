"""Which series of an hour satisfy matchers: set operations on the bitmaps of the inverted index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyroaring

from penstock.blocks import BlockReader
from penstock.timeseries.arrays import Ids
from penstock.timeseries.format.index_block import IndexBlock
from penstock.timeseries.format.keys import label_key, name_range
from penstock.timeseries.format.state import DICTIONARY, INDEX, TenantState
from penstock.timeseries.promql import Matcher, MatchKind

__all__ = ["LabelTest", "label_tests", "label_values_of", "matching_ids", "name_blocks"]


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

    def tells(self, value: str) -> bool:
        """Whether series with a value are not as those without the label."""
        return self(value) != self.absent


def label_tests(matchers: Iterable[Matcher]) -> list[LabelTest]:
    """The matchers in the order in which they are cheapest: exact ones leave the others less to do."""
    return [LabelTest(matcher) for matcher in sorted(matchers, key=lambda matcher: matcher.kind is not MatchKind.EQUAL)]


async def matching_ids(
    blocks: BlockReader, state: TenantState, hours: Sequence[int], tests: Sequence[LabelTest]
) -> dict[int, Ids]:
    """For each hour the ids of the series that satisfy all matchers, in order. Blocks of all hours are read together."""
    lows = {(hour, test): _lows(state, hour, test.matcher) for hour in hours for test in tests}
    wanted = dict.fromkeys(low for some in lows.values() for low in some)
    found = await blocks.contents(state, INDEX, wanted, IndexBlock)
    ids: dict[int, Ids] = {}
    for hour in hours:
        everything = pyroaring.BitMap()
        everything.add_range(0, state.rows(DICTIONARY, hour))
        matching = everything
        for test in tests:
            index = [found[low] for low in lows[hour, test] if low in found]
            matching = matching & _matching(index, test, everything)
            if not matching:
                break
        ids[hour] = np.array(matching.to_array(), np.uint32)
    return ids


def _lows(state: TenantState, hour: int, matcher: Matcher) -> list[int]:
    """The blocks of an hour's index that may know labels which a matcher asks for."""
    lows = state.lows(INDEX, hour)
    if not len(lows):
        return []
    if _is_exact(matcher):
        keys = np.array([label_key(hour, matcher.name, matcher.value)], np.uint64)
        return [int(lows[state.owners(INDEX, hour, keys)[0]])]
    first, end = name_range(hour, matcher.name)
    places = state.owners(INDEX, hour, np.array([first, end - 1], np.uint64))
    found: list[int] = lows[places[0] : places[1] + 1].tolist()
    return found


def _is_exact(matcher: Matcher) -> bool:
    """Whether one label decides."""
    return matcher.kind in (MatchKind.EQUAL, MatchKind.NOT_EQUAL) and matcher.value != ""


def _matching(index: Sequence[IndexBlock], test: LabelTest, everything: pyroaring.BitMap) -> pyroaring.BitMap:
    matcher = test.matcher
    if _is_exact(matcher):
        series = [block.series(matcher.name, matcher.value) for block in index]
        having = next((found for found in series if found is not None), pyroaring.BitMap())
        return having if matcher.kind is MatchKind.EQUAL else everything - having
    # Series without the label are those that no value has: then the unwanted values are told.
    told = [series for block in index for series in block.series_where(matcher.name, test.tells)]
    union = pyroaring.BitMap.union(*told) if len(told) > 1 else told[0] if told else pyroaring.BitMap()
    return everything - union if test.absent else union


async def name_blocks(blocks: BlockReader, state: TenantState, hour: int, name: str | None) -> list[IndexBlock]:
    """The blocks of an hour that may know labels of a name, or of any."""
    lows = state.lows(INDEX, hour)
    if not len(lows):
        return []
    if name is not None:
        first, end = name_range(hour, name)
        places = state.owners(INDEX, hour, np.array([first, end - 1], np.uint64))
        lows = lows[places[0] : places[1] + 1]
    return list((await blocks.contents(state, INDEX, lows.tolist(), IndexBlock)).values())


def label_values_of(found: Iterable[IndexBlock], name: str) -> set[str]:
    return {value for block in found for value in block.label_values(name)}
