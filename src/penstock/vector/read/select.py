"""Which rows a filter selects: comparisons run over whole decoded columns and end as one bit per row."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.blocks import BlockReader, Damage, Directory, Shelf
from penstock.vector.arrays import Bools, Ids, Indices
from penstock.vector.attributes import AttributeType
from penstock.vector.filter import And, Filter, In, IsNull, Not, Or, Range, check_filter, filter_key, match_values
from penstock.vector.format.content import ColumnBlock
from penstock.vector.format.idset import IdSet
from penstock.vector.format.keys import Family
from penstock.vector.format.state import CollectionState

__all__ = ["Selection", "keep_selection", "select_rows"]

# Buckets of a column that are looked through at a time: a few megabytes.
_BUCKETS_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class Selection:
    """The visible rows that a filter matches, how many they are, and the name they are kept under, if they are."""

    ids: IdSet
    rows: int
    name: Hashable = None

    @property
    def size_bytes(self) -> int:
        return int(self.ids.bits.nbytes)


async def keep_selection(blocks: BlockReader, state: CollectionState, where: Filter, damage: Damage) -> Selection:
    """The rows that a filter selects, compared once for all searches of this state with the same filter."""
    check_filter(where, state.types)
    # Whatever a commit changes, it changes its number too.
    name = Selection, state.number, state.head.commit, filter_key(where)
    entry = blocks.cache.get(name, Selection)
    if entry is not None and entry.block is not None:
        return entry.block
    found = await _Matching(blocks, state, damage).of(where)
    ids = IdSet.of_mask(found).intersection(state.visible)
    if damage:
        # Damage may be mended without a commit, and every answer has to tell of it.
        return Selection(ids, len(ids))
    selection = Selection(ids, len(ids), name)
    blocks.cache.put(name, selection)
    return selection


async def select_rows(blocks: BlockReader, state: CollectionState, where: Filter, damage: Damage | None) -> IdSet:
    """The visible rows that a filter matches; a row whose value cannot be read matches neither it nor its negation."""
    check_filter(where, state.types)
    return IdSet.of_mask(await _Matching(blocks, state, damage).of(where)).intersection(state.visible)


class _Matching:
    """One filter over one state."""

    def __init__(self, blocks: BlockReader, state: CollectionState, damage: Damage | None) -> None:
        self._blocks = blocks
        self._state = state
        self._damage = damage
        # Rows of buckets that could not be read whole.
        self._unknown = np.zeros(state.head.next_id, np.bool_)

    async def of(self, where: Filter) -> Bools:
        mask = await self._mask(where)
        return mask & ~self._unknown

    async def _mask(self, where: Filter) -> Bools:
        match where:
            case And(parts):
                mask = np.ones(self._state.head.next_id, np.bool_)
                for part in parts:
                    mask &= await self._mask(part)
                return mask
            case Or(parts):
                mask = np.zeros(self._state.head.next_id, np.bool_)
                for part in parts:
                    mask |= await self._mask(part)
                return mask
            case Not(part):
                return ~(await self._mask(part))
            case IsNull(name):
                return ~(await self._matched(name, lambda content, _: content.ids))
            case In() | Range():
                return await self._matched(
                    where.name, lambda content, kind: content.ids[match_values(where, kind, content.values)]
                )
        raise AssertionError(where)

    async def _matched(self, name: str, match: Callable[[ColumnBlock, AttributeType], Ids]) -> Bools:
        """The rows that `match` picks out of the blocks of one attribute."""
        record = self._state.attributes[name]
        shelf = Shelf(Family.COLUMN, record.number)
        directory = self._state.directory(shelf)
        mask = np.zeros(self._state.head.next_id, np.bool_)
        read = np.zeros(len(directory), np.int64)
        lows = directory.lows.tolist()
        # A few at a time: a column of any length is looked through, and not all of it is held.
        for first in range(0, len(lows), _BUCKETS_AT_ONCE):
            part = lows[first : first + _BUCKETS_AT_ONCE]
            stored = await self._blocks.contents(self._state, shelf, part, ColumnBlock, self._damage)
            for place, low in enumerate(part, first):
                if low in stored:
                    content = stored[low]
                    mask[match(content, record.type)] = True
                    read[place] = len(content)
        self._note_unread(directory, read)
        return mask

    def _note_unread(self, directory: Directory, read: Indices) -> None:
        for place in np.flatnonzero((read < directory.rows) | (read == 0)).tolist():
            end = int(directory.lows[place + 1]) if place + 1 < len(directory) else len(self._unknown)
            self._unknown[int(directory.lows[place]) : end] = True
