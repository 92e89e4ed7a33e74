"""Finding rows: by external id through the dictionary, and values of rows by internal id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np
import pyarrow as pa

from penstock.vector.arrays import Column, Floats, Ids, Indices
from penstock.vector.blocks import BlockReader, Damage
from penstock.vector.content import ColumnBlock, Content, VectorBlock
from penstock.vector.documents import DocumentBlock
from penstock.vector.identity import ABSENT, DictionaryBlock, Identities, identity_of_text
from penstock.vector.keys import Family, Shelf
from penstock.vector.state import CollectionState

__all__ = ["document_blocks", "find_column", "find_rows", "find_vectors"]

C = TypeVar("C", bound=Content)
_VECTORS = Shelf(Family.VECTORS)
_DICTIONARY = Shelf(Family.DICTIONARY)
_DOCUMENTS = Shelf(Family.DOCUMENTS)


async def find_rows(
    blocks: BlockReader, state: CollectionState, identities: Identities, damage: Damage | None = None
) -> Ids:
    """The living row of each identity, or ABSENT."""
    found = np.full(len(identities), ABSENT, np.int64)
    directory = state.directory(_DICTIONARY)
    if not len(directory) or not len(identities):
        return found
    places = directory.locate(identities.high)
    lows = {int(place): int(directory.lows[place]) for place in np.unique(places)}
    stored = await blocks.contents(state, _DICTIONARY, lows.values(), DictionaryBlock, damage)
    for place, low in lows.items():
        if low in stored:
            mine = np.flatnonzero(places == place)
            found[mine] = stored[low].find(identities.take(mine))
    found[state.deleted.contains(found)] = ABSENT
    return found


async def find_vectors(
    blocks: BlockReader, state: CollectionState, ids: Ids, damage: Damage | None = None
) -> tuple[Floats, Indices]:
    """The vectors of rows, in the order of `ids`, and the positions of those that were not found."""
    vectors = np.zeros((len(ids), state.dimensions), np.float32)
    missing = np.ones(len(ids), np.bool_)
    for content, mine, rows in await _rows_of(blocks, state, _VECTORS, ids, VectorBlock, damage):
        vectors[mine] = content.vectors[rows]
        missing[mine] = False
    return vectors, np.flatnonzero(missing)


async def find_column(
    blocks: BlockReader,
    state: CollectionState,
    shelf: Shelf,
    ids: Ids,
    kind: pa.DataType,
    damage: Damage | None = None,
) -> Column:
    """The values of rows in a column, in the order of `ids`; null where there is none."""
    parts: list[Column] = [pa.array([None], kind)]
    place = np.zeros(len(ids), np.int64)
    filled = 1
    for content, mine, rows in await _rows_of(blocks, state, shelf, ids, ColumnBlock, damage):
        parts.append(content.values.take(rows))
        place[mine] = np.arange(filled, filled + len(mine))
        filled += len(mine)
    return pa.concat_arrays(parts).take(pa.array(place))


async def document_blocks(
    blocks: BlockReader, state: CollectionState, documents: Iterable[str], damage: Damage | None = None
) -> list[DocumentBlock]:
    """The buckets that hold what is known of some documents."""
    directory = state.directory(_DOCUMENTS)
    keys = np.array([identity_of_text(name)[0] for name in documents], np.uint64)
    if not len(directory) or not len(keys):
        return []
    lows = directory.lows[np.unique(directory.locate(keys))].tolist()
    return list((await blocks.contents(state, _DOCUMENTS, lows, DocumentBlock, damage)).values())


async def _rows_of(
    blocks: BlockReader, state: CollectionState, shelf: Shelf, ids: Ids, kind: type[C], damage: Damage | None
) -> list[tuple[C, Indices, Indices]]:
    """Buckets that hold some of `ids`: the content, which of `ids` they are, and their rows in it."""
    directory = state.directory(shelf)
    if not len(directory) or not len(ids):
        return []
    places = directory.locate(ids)
    order = np.argsort(places, kind="stable")
    starts = np.flatnonzero(np.diff(places[order], prepend=-2))
    groups = np.split(order, starts[1:])
    lows = [int(directory.lows[places[group[0]]]) if places[group[0]] >= 0 else -1 for group in groups]
    stored = await blocks.contents(state, shelf, [low for low in lows if low >= 0], kind, damage)
    found = []
    for low, group in zip(lows, groups, strict=True):
        if low in stored:
            content = stored[low]
            rows = np.searchsorted(content.ids, ids[group])
            there = rows < len(content)
            there[there] = content.ids[rows[there]] == ids[group[there]]
            found.append((content, group[there], rows[there]))
    return found
