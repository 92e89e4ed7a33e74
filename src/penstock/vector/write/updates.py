"""Attributes of rows that are there already: new values in the blocks of a column, and nothing else is touched.

Vectors, texts, words and lists stay as they are, and so do the internal ids: a row that gets other attributes is the
same row. Rows that arrive in the same flush get their values before they are stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from penstock.blocks import BlockReader, Shelf, restack
from penstock.vector.arrays import Column, Ids
from penstock.vector.attributes import attribute_type
from penstock.vector.format.content import ColumnBlock
from penstock.vector.format.keys import Family
from penstock.vector.format.state import AttributeRecord, CollectionState, Head
from penstock.vector.write.draft import CollectionDraft
from penstock.vector.write.ledger import AttributeUpdate, Ledger

__all__ = ["NewValues", "new_values", "overridden", "update_columns"]

# Buckets of a column that are rewritten at a time.
_BUCKETS_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class NewValues:
    """The last value that a flush gives to each of some rows, by growing ids; null takes a value away."""

    ids: Ids
    values: Column

    def between(self, low: int, high: int) -> NewValues:
        first, last = np.searchsorted(self.ids, [low, high]).tolist()
        return NewValues(self.ids[first:last], self.values.slice(first, last - first))

    def __len__(self) -> int:
        return len(self.ids)


def new_values(ledger: Ledger) -> dict[str, NewValues]:
    """What the updates of a flush come to, by attribute: of living rows, the last word counts."""
    named: dict[str, list[AttributeUpdate]] = {}
    for update in ledger.updates:
        for name in update.columns:
            named.setdefault(name, []).append(update)
    found = {name: _last_values(name, updates, ledger) for name, updates in named.items()}
    return {name: values for name, values in found.items() if len(values)}


def _last_values(name: str, updates: Sequence[AttributeUpdate], ledger: Ledger) -> NewValues:
    ids = np.concatenate([update.ids for update in updates])
    parts = [update.columns[name].take(pa.array(update.places)) for update in updates]
    # Values that are only taken away have no type of their own.
    kind = next((part.type for part in parts if not pa.types.is_null(part.type)), pa.null())
    values = pa.concat_arrays([part.cast(kind) for part in parts])
    # Of equal ids the last one: `unique` tells the first, so it is asked from behind.
    unique, places = np.unique(ids[::-1], return_index=True)
    places = len(ids) - 1 - places
    living = ~ledger.dead.contains(unique)
    return NewValues(unique[living], values.take(pa.array(places[living])))


def overridden(block: ColumnBlock | None, new: NewValues) -> ColumnBlock:
    """A block with other values: those of `new` instead of its own, and without rows whose value is taken away."""
    if new.values.null_count == len(new) and block is not None:
        return block.take(~np.isin(block.ids, new.ids))
    there = new.values.is_valid().to_numpy(zero_copy_only=False)
    added = ColumnBlock(new.ids[there], new.values.filter(pa.array(there)))
    if block is None or not len(block):
        return added
    merged = ColumnBlock.merge([block.take(~np.isin(block.ids, new.ids)), added])
    return merged.take(np.argsort(merged.ids, kind="stable"))


async def update_columns(draft: CollectionDraft, blocks: BlockReader, new: Mapping[str, NewValues], head: Head) -> Head:
    """Rewrite what is stored of these attributes; what arrives is not looked at. Before anything is stacked."""
    state, records = draft.base, {record.name: record for record in head.attributes}
    for name, values in sorted(new.items()):
        stored = values.between(0, state.head.next_id)
        if not len(stored) or (name not in records and stored.values.null_count == len(stored)):
            continue
        record = records.get(name)
        if record is None:
            kind = attribute_type(stored.values.type)
            assert kind is not None
            record = records[name] = AttributeRecord(len(records) + 1, name, kind)
        await _rewrite(draft, blocks, state, Shelf(Family.COLUMN, record.number), stored)
    return msgspec.structs.replace(head, attributes=tuple(records.values()))


async def _rewrite(
    draft: CollectionDraft, blocks: BlockReader, state: CollectionState, shelf: Shelf, new: NewValues
) -> None:
    directory = state.directory(shelf)
    places = directory.locate(new.ids) if len(directory) else np.full(len(new), -1, np.int64)
    # Rows that lie before all that have a value so far.
    first_rows = overridden(None, NewValues(new.ids[places < 0], new.values.filter(pa.array(places < 0))))
    if len(first_rows):
        restack(draft, shelf, int(first_rows.ids[0]), first_rows, first_rows.ids)
    touched = np.unique(places[places >= 0])
    for first in range(0, len(touched), _BUCKETS_AT_ONCE):
        lows = directory.lows[touched[first : first + _BUCKETS_AT_ONCE]].tolist()
        stored = await blocks.contents(state, shelf, lows, ColumnBlock)
        for place, low in zip(touched[first : first + _BUCKETS_AT_ONCE].tolist(), lows, strict=True):
            mine = NewValues(new.ids[places == place], new.values.filter(pa.array(places == place)))
            block = overridden(stored.get(low), mine)
            restack(draft, shelf, int(low), block, block.ids)
