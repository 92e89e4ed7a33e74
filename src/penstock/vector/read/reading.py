"""A collection's state as the store holds it, all of one moment, and as whole as damage leaves it.

A directory page that cannot be read is made again from the keys of the fragments it listed, and a centre from the rows
of its list. Dead or hidden rows that cannot be told from others are taken for dead: an answer may lack rows, and
never shows one that should not be there. Whatever was damaged is named in the state, with what of it was made again
whole: `mend` writes that again, and nothing else is written to a state that lacks more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from penstock.blocks import BlockReader, Damage, Shelf, all_keys, read_directories, read_under_head
from penstock.blocks import read_head as read_stored_head
from penstock.errors import Corrupt
from penstock.keyvalue import Reader, prefix_end
from penstock.vector.arrays import Floats
from penstock.vector.format.clusters import Centroids
from penstock.vector.format.codes import decode
from penstock.vector.format.content import IdBlock, PostingBlock, VectorBlock
from penstock.vector.format.idset import BITMAP_IDS, IdSet
from penstock.vector.format.keys import (
    COLLECTION_DATA,
    COLLECTIONS,
    CollectionName,
    Family,
    collection_key,
    collection_number,
    collection_prefix,
    parse_collection_key,
)
from penstock.vector.format.state import CollectionRecord, CollectionState, Head
from penstock.vector.format.store_format import COLLECTION_RECORD, FORMAT

__all__ = ["collection_keys", "read_head", "read_state", "unclaimed_numbers"]

_CENTROIDS: Final = Shelf(Family.CENTROIDS)
_POSTINGS: Final = Shelf(Family.POSTINGS)
# Lists whose centres are made again at a time.
_RECENTRED_LISTS: Final = 256


async def read_head(reader: Reader, name: CollectionName, number: int) -> Head | None:
    return await read_stored_head(reader, FORMAT, collection_prefix(number), name, Head)


async def read_state(blocks: BlockReader, name: CollectionName) -> CollectionState | None:
    """The state of a collection, or None if there is none of that name."""
    value = await blocks.reader.get(collection_key(name))
    if value is None:
        return None
    record = FORMAT.decode_record(COLLECTION_RECORD, value, CollectionRecord, f"the record of {name}")

    async def under(head: Head) -> CollectionState:
        return await _read_under(blocks, name, record, head)

    return await read_under_head(blocks, collection_prefix(record.number), name, Head, under)


async def collection_keys(blocks: BlockReader, name: CollectionName) -> list[bytes]:
    """Every key that belongs to a collection, however damaged it is; none if there is none of that name."""
    value = await blocks.reader.get(collection_key(name))
    if value is None:
        return []
    try:
        number = FORMAT.decode_record(COLLECTION_RECORD, value, CollectionRecord, f"the record of {name}").number
    except Corrupt:
        # Data that no record claims is its own, unless there are several such records: then `repair` tells them apart.
        broken, unclaimed = await unclaimed_numbers(blocks.reader)
        mine = unclaimed if len(broken) == 1 else []
        return [collection_key(name), *[key for number in mine for key in await _data_keys(blocks.reader, number)]]
    try:
        state = await read_state(blocks, name)
    except Corrupt:
        # Without a head the directories cannot be trusted: everything is looked through.
        return [collection_key(name), *await _data_keys(blocks.reader, number)]
    assert state is not None
    if state.lost:
        return [collection_key(name), *await _data_keys(blocks.reader, number)]
    return [collection_key(name), *all_keys(state)]


async def _data_keys(reader: Reader, number: int) -> list[bytes]:
    return [key async for entries in reader.scan_prefix(collection_prefix(number)) for key, _ in entries]


async def unclaimed_numbers(reader: Reader) -> tuple[list[CollectionName], list[int]]:
    """Collections whose record is damaged, and the numbers that have data and that no other record claims."""
    broken: list[CollectionName] = []
    claimed: set[int] = set()
    async for entries in reader.scan_prefix(COLLECTIONS):
        for key, value in entries:
            try:
                claimed.add(FORMAT.decode_record(COLLECTION_RECORD, value, CollectionRecord).number)
            except Corrupt:
                broken.append(parse_collection_key(key))
    unclaimed: list[int] = []
    start = COLLECTION_DATA
    while (number := await _first_number(reader, start)) is not None:
        if number not in claimed:
            unclaimed.append(number)
        start = collection_prefix(number + 1)
    return broken, unclaimed


async def _first_number(reader: Reader, start: bytes) -> int | None:
    """The lowest number that has data from a key on."""
    async for entries in reader.scan(start, prefix_end(COLLECTION_DATA), block_bytes=1):
        return collection_number(entries[0][0])
    return None


async def _read_under(
    blocks: BlockReader, name: CollectionName, record: CollectionRecord, head: Head
) -> CollectionState:
    bare = CollectionState(name, record, head, {}, Centroids.none(record.dimensions))
    stored = await read_directories(blocks, bare.prefix, name)
    damages, rebuilt = stored.damages, stored.remade
    bare = replace(bare, directories=stored.directories)
    centroids = await _read_centroids(blocks, bare, damages.setdefault(_CENTROIDS, Damage()), rebuilt)
    deleted, hidden = [
        await _read_ids(blocks, bare, shelf, damages.setdefault(shelf, Damage()))
        for shelf in (Shelf(Family.DELETED), Shelf(Family.HIDDEN))
    ]
    lost = {shelf: tuple(damage.blocks) for shelf, damage in damages.items() if damage}
    return replace(bare, centroids=centroids, deleted=deleted, hidden=hidden, lost=lost, rebuilt=frozenset(rebuilt))


# centroids ------------------------------------------------------------------------------------


async def _read_centroids(blocks: BlockReader, state: CollectionState, damage: Damage, rebuilt: set[str]) -> Centroids:
    lows = state.directory(_CENTROIDS).lows.tolist()
    stored = list((await blocks.contents(state, _CENTROIDS, lows, VectorBlock, damage)).values())
    merged = VectorBlock.merge(stored) if stored else None
    none = Centroids.none(state.dimensions)
    centroids = none if merged is None else none.changed(none.lists, merged.ids, merged.vectors)
    if not damage:
        return centroids
    lists = np.setdiff1d(state.directory(_POSTINGS).lows.astype(np.int64), centroids.lists)
    lost = list(damage.blocks)
    centres = await _recentred(blocks, state, lists.tolist(), damage)
    if len(centres) == len(lists):
        rebuilt.update(lost)
    if not centres:
        return centroids
    known = np.array(list(centres), np.int64)
    return centroids.changed(known[:0], known, np.stack(list(centres.values())))


async def _recentred(
    blocks: BlockReader, state: CollectionState, lists: Sequence[int], damage: Damage
) -> dict[int, Floats]:
    """Lists with the middle of their rows for a centre."""
    centres: dict[int, Floats] = {}
    for first in range(0, len(lists), _RECENTRED_LISTS):
        part = lists[first : first + _RECENTRED_LISTS]
        stored = await blocks.contents(state, _POSTINGS, part, PostingBlock, damage)
        for number, content in stored.items():
            mean = decode(content.codes).mean(axis=0, keepdims=True, dtype=np.float32)
            centres[number] = state.metric.prepare(mean)[0]
    return centres


# dead and hidden rows -------------------------------------------------------------------------


async def _read_ids(blocks: BlockReader, state: CollectionState, shelf: Shelf, damage: Damage) -> IdSet:
    lows = state.directory(shelf).lows.tolist()
    found = await blocks.contents(state, shelf, lows, IdBlock, damage)
    limit = state.head.next_id
    parts = [found[low].ids if low in found else np.arange(low, min(low + BITMAP_IDS, limit)) for low in lows]
    return IdSet.of(np.concatenate([np.empty(0, np.int64), *parts]), limit)
