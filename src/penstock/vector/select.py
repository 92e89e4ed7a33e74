"""Which rows a filter selects: comparisons run over whole decoded columns and end as one bit per row."""

from __future__ import annotations

import numpy as np

from penstock.vector.arrays import Bools
from penstock.vector.blocks import BlockReader, Damage
from penstock.vector.content import ColumnBlock
from penstock.vector.filter import And, Filter, In, Not, Or, Range, check_filter, match_values
from penstock.vector.idset import IdSet
from penstock.vector.keys import Family, Shelf
from penstock.vector.state import CollectionState

__all__ = ["select_rows"]


async def select_rows(blocks: BlockReader, state: CollectionState, where: Filter, damage: Damage | None) -> IdSet:
    """The visible rows that a filter matches."""
    check_filter(where, state.types)
    mask = await _mask(blocks, state, where, damage)
    return IdSet.of_mask(mask).intersection(state.visible)


async def _mask(blocks: BlockReader, state: CollectionState, where: Filter, damage: Damage | None) -> Bools:
    match where:
        case And(parts):
            mask = np.ones(state.head.next_id, np.bool_)
            for part in parts:
                mask &= await _mask(blocks, state, part, damage)
            return mask
        case Or(parts):
            mask = np.zeros(state.head.next_id, np.bool_)
            for part in parts:
                mask |= await _mask(blocks, state, part, damage)
            return mask
        case Not(part):
            return ~(await _mask(blocks, state, part, damage))
        case In() | Range():
            return await _compare(blocks, state, where, damage)
    raise AssertionError(where)


async def _compare(blocks: BlockReader, state: CollectionState, where: In | Range, damage: Damage | None) -> Bools:
    record = state.attributes[where.name]
    shelf = Shelf(Family.COLUMN, record.number)
    mask = np.zeros(state.head.next_id, np.bool_)
    stored = await blocks.contents(state, shelf, state.directory(shelf).lows.tolist(), ColumnBlock, damage)
    for content in stored.values():
        mask[content.ids[match_values(where, record.type, content.values)]] = True
    return mask
