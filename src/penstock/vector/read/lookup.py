"""Finding rows: by external id through the dictionary, and values of rows by internal id."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from penstock.blocks import BlockReader, Damage, Shelf, Sized
from penstock.vector.arrays import Column, Ids, Indices, distinct
from penstock.vector.format.content import ColumnBlock, RowBlock
from penstock.vector.format.document_log import DocumentBlock
from penstock.vector.format.identity import ABSENT, DictionaryBlock, Identities, identity_of_text
from penstock.vector.format.keys import Family
from penstock.vector.format.state import CollectionState

__all__ = [
    "FEW_ROWS",
    "document_blocks",
    "each_bucket",
    "find_column",
    "find_rows",
    "row_of",
    "rows_in_buckets",
    "text_column",
]

_DICTIONARY: Final = Shelf(Family.DICTIONARY)
_DOCUMENTS: Final = Shelf(Family.DOCUMENTS)
# So many rows are found sooner one by one than by sorting them into buckets.
FEW_ROWS: Final = 64
# The bucket of ids before the first one: no row has them.
_NOWHERE: Final = -1
_TEXT: Final = pa.string()


C = TypeVar("C", bound=RowBlock)
S = TypeVar("S", bound=Sized)


async def find_rows(
    blocks: BlockReader, state: CollectionState, identities: Identities, damage: Damage | None = None
) -> Ids:
    """The living row of each identity, or ABSENT."""
    found = np.full(len(identities), ABSENT, np.int64)
    directory = state.directory(_DICTIONARY)
    if not len(directory) or not len(identities):
        return found
    places = directory.owners(identities.high)
    lows = {int(place): int(directory.lows[place]) for place in distinct(places)}
    stored = await blocks.contents(state, _DICTIONARY, lows.values(), DictionaryBlock, damage)
    for place, low in lows.items():
        if low in stored:
            mine = np.flatnonzero(places == place)
            found[mine] = stored[low].find(identities.take(mine))
    found[state.deleted.contains(found)] = ABSENT
    return found


async def find_column(
    blocks: BlockReader,
    state: CollectionState,
    shelf: Shelf,
    ids: Ids,
    kind: pa.DataType,
    damage: Damage | None = None,
) -> Column:
    """The values of rows in a column, in the order of `ids`; null where there is none."""
    if len(ids) <= FEW_ROWS:
        return await _few_values(blocks, state, shelf, ids, kind, damage)
    parts: list[Column] = [pa.array([None], kind)]
    place = np.zeros(len(ids), np.int64)
    filled = 1
    for content, mine, rows in await rows_in_buckets(blocks, state, shelf, ids, ColumnBlock, damage):
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
    lows = directory.lows[distinct(directory.owners(keys))].tolist()
    return list((await blocks.contents(state, _DOCUMENTS, lows, DocumentBlock, damage)).values())


async def rows_in_buckets(
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


async def _few_values(
    blocks: BlockReader, state: CollectionState, shelf: Shelf, ids: Ids, kind: pa.DataType, damage: Damage | None
) -> Column:
    def read(lows: Iterable[int]) -> Awaitable[Mapping[int, ColumnBlock]]:
        return blocks.contents(state, shelf, lows, ColumnBlock, damage)

    names = ids.tolist()
    buckets = await each_bucket(blocks, state, shelf, names, ColumnBlock, read)
    places = [None if bucket is None else row_of(bucket.ids, name) for bucket, name in zip(buckets, names, strict=True)]
    found = [
        (bucket, row) for bucket, row in zip(buckets, places, strict=True) if bucket is not None and row is not None
    ]
    if len(found) == len(names) and kind == _TEXT:
        return text_column([bucket.text(row) for bucket, row in found])
    none: Column = pa.array([None], kind) if len(found) < len(names) else None
    # Values stay Arrow's own: a piece of one row costs less than a detour over Python's objects.
    pieces = [
        none if bucket is None or row is None else bucket.values.slice(row, 1)
        for bucket, row in zip(buckets, places, strict=True)
    ]
    return pa.concat_arrays(pieces) if pieces else pa.array([], kind)


def text_column(texts: Sequence[bytes | memoryview]) -> Column:
    """Texts as a column, of their bytes: half of what it costs to put pieces of Arrow's columns together."""
    ends = array("i", accumulate(map(len, texts), initial=0))
    return pa.Array.from_buffers(_TEXT, len(texts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))])


async def each_bucket(
    blocks: BlockReader,
    state: CollectionState,
    shelf: Shelf,
    names: Sequence[int],
    result: type[S],
    read: Callable[[Iterable[int]], Awaitable[Mapping[int, S]]],
) -> Sequence[S | None]:
    """The bucket of each of a few ids, as `read` gives it if it is not at hand; None if there is none."""
    lows = state.directory(shelf).low_list
    buckets = [lows[place - 1] if (place := bisect_right(lows, name)) else _NOWHERE for name in names]
    held = blocks.held(state, shelf, buckets, result)
    if held is not None:
        blocks.cache.count(len(held), 0)
        return held
    stored = await read([low for low in buckets if low != _NOWHERE])
    return [stored.get(low) for low in buckets]


def row_of(ids: Ids, name: int) -> int | None:
    """The row of one of some growing ids, if it is there."""
    # Without gaps the row follows from the id; after rows have died it has to be looked for.
    row = name - ids.item(0)
    if 0 <= row < len(ids) and ids.item(row) == name:
        return row
    row = int(np.searchsorted(ids, name))
    return row if row < len(ids) and ids.item(row) == name else None
