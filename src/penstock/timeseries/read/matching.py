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


def label_tests(matchers: Iterable[Matcher]) -> list[LabelTest]:
    """The matchers in the order in which they are cheapest: exact ones leave the others less to do."""
    return [LabelTest(matcher) for matcher in sorted(matchers, key=lambda matcher: matcher.kind is not MatchKind.EQUAL)]


async def matching_ids(blocks: BlockReader, state: TenantState, hour: int, tests: Sequence[LabelTest]) -> Ids:
    """The ids of the series of an hour that satisfy all matchers, in order."""
    everything = pyroaring.BitMap(range(state.rows(DICTIONARY, hour)))
    found = everything
    for test in tests:
        found = found & await _matching(blocks, state, hour, test, everything)
        if not found:
            break
    return np.array(found.to_array(), np.uint32)


async def _matching(
    blocks: BlockReader, state: TenantState, hour: int, test: LabelTest, everything: pyroaring.BitMap
) -> pyroaring.BitMap:
    matcher = test.matcher
    if matcher.kind in (MatchKind.EQUAL, MatchKind.NOT_EQUAL) and matcher.value:
        having = await _exactly(blocks, state, hour, matcher.name, matcher.value)
        return having if matcher.kind is MatchKind.EQUAL else everything - having
    union: list[pyroaring.BitMap] = []
    for block in await name_blocks(blocks, state, hour, matcher.name):
        for value in block.label_values(matcher.name):
            # Series without the label are those that no value has: then the unwanted values are told.
            if test(value) != test.absent:
                series = block.series(matcher.name, value)
                assert series is not None
                union.append(series)
    told = pyroaring.BitMap.union(*union) if len(union) > 1 else union[0] if union else pyroaring.BitMap()
    return everything - told if test.absent else told


async def _exactly(blocks: BlockReader, state: TenantState, hour: int, name: str, value: str) -> pyroaring.BitMap:
    lows = state.lows(INDEX, hour)
    if not len(lows):
        return pyroaring.BitMap()
    place = int(state.owners(INDEX, hour, np.array([label_key(hour, name, value)], np.uint64))[0])
    found = await blocks.contents(state, INDEX, [int(lows[place])], IndexBlock)
    for block in found.values():
        series = block.series(name, value)
        if series is not None:
            return series
    return pyroaring.BitMap()


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
