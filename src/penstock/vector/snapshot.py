"""One moment of the whole store: its view of the key-value store, collections as far as they were needed, positions.

A snapshot is shared by everybody who reads that moment and closed when the last of them is done and a newer
one is published.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from penstock.errors import Corrupt, Unavailable
from penstock.keyvalue import Reader
from penstock.vector.arrays import Array
from penstock.vector.block import FORMAT_VERSION, Kind, newer_format, unseal
from penstock.vector.blocks import BlockReader, StateMoved
from penstock.vector.clusters import Centroids
from penstock.vector.content import IdBlock, VectorBlock
from penstock.vector.directory import Directory, decode_page, directory_of
from penstock.vector.idset import IdSet
from penstock.vector.keys import (
    COLLECTIONS,
    POSITIONS,
    STORE,
    CollectionName,
    Family,
    Shelf,
    collection_key,
    head_key,
    pages_prefix,
    parse_collection_key,
    parse_page_key,
)
from penstock.vector.state import CollectionRecord, CollectionState, Head, StoreRecord, decode_record

__all__ = ["VectorSnapshot", "list_collections", "read_head", "read_positions", "read_state", "read_store"]

_CENTROIDS: Final = Shelf(Family.CENTROIDS)
# A follower polls about once a second and reads a state in milliseconds: losing this race so often is no chance.
_READ_ATTEMPTS: Final = 10


@dataclass(eq=False)
class VectorSnapshot:
    """The store at one moment."""

    blocks: BlockReader
    store: StoreRecord
    positions: Mapping[str, int]
    # The last write of the coordinator that is in it. Lives in memory only, as epochs do.
    epoch: int = 0
    states: OrderedDict[CollectionName, CollectionState] = field(default_factory=OrderedDict)
    holders: int = 0

    @property
    def reader(self) -> Reader:
        return self.blocks.reader

    @contextmanager
    def held(self) -> Iterator[VectorSnapshot]:
        """Keep the snapshot open meanwhile."""
        self.holders += 1
        try:
            yield self
        finally:
            self.holders -= 1

    async def state(self, name: CollectionName) -> CollectionState | None:
        """A collection at this moment; None if there is none of that name."""
        state = self.states.get(name)
        if state is None:
            state = await read_state(self.blocks, name)
            if state is not None:
                self.states[name] = state
        else:
            self.states.move_to_end(name)
        return state

    def advanced(
        self,
        reader: Reader,
        store: StoreRecord,
        positions: Mapping[str, int],
        epoch: int,
        changed: Mapping[CollectionName, CollectionState],
        states_max: int,
    ) -> VectorSnapshot:
        """The next moment, in which some collections have changed."""
        states = OrderedDict(self.states)
        for name, state in changed.items():
            states[name] = state
            states.move_to_end(name)
        while len(states) > max(states_max, len(changed)):
            states.popitem(last=False)
        return replace(
            self,
            blocks=self.blocks.over(reader),
            store=store,
            positions=positions,
            epoch=epoch,
            states=states,
            holders=0,
        )

    async def close(self) -> None:
        await self.reader.close()


async def read_store(reader: Reader) -> StoreRecord:
    """The store's own record; that of an empty store if there is none."""
    value = await reader.get(STORE)
    if value is None:
        return StoreRecord(FORMAT_VERSION, 0)
    record = decode_record(Kind.STORE, value, StoreRecord)
    if record.format > FORMAT_VERSION:
        raise newer_format(record.format)
    return record


async def read_positions(reader: Reader) -> dict[str, int]:
    positions: dict[str, int] = {}
    async for entries in reader.scan_prefix(POSITIONS):
        for key, value in entries:
            body = unseal(Kind.POSITION, value)
            positions[key[len(POSITIONS) :].decode()] = int.from_bytes(body, "little")
    return positions


async def list_collections(reader: Reader) -> list[CollectionName]:
    """The names of all collections, in order."""
    found: list[CollectionName] = []
    async for entries in reader.scan_prefix(COLLECTIONS):
        found += [parse_collection_key(key) for key, _ in entries]
    return sorted(found)


async def read_head(reader: Reader, number: int) -> Head | None:
    value = await reader.get(head_key(number))
    return None if value is None else decode_record(Kind.HEAD, value, Head)


async def read_state(blocks: BlockReader, name: CollectionName) -> CollectionState | None:
    """A collection's state, all of one moment."""
    value = await blocks.reader.get(collection_key(name))
    if value is None:
        return None
    record = decode_record(Kind.COLLECTION, value, CollectionRecord)
    # A follower's view may advance between two reads: a head that is still the same proves that it did not.
    for _ in range(_READ_ATTEMPTS):
        head = await read_head(blocks.reader, record.number)
        if head is None:
            raise Corrupt(f"{name} has no head", "the collection is listed and its head is missing")
        try:
            state = await _read_under(blocks, name, record, head)
        except StateMoved:
            continue
        if not blocks.moving or await read_head(blocks.reader, record.number) == head:
            return state
    raise Unavailable(f"{name} changes faster than it can be read", "", "read again, or poll less often")


async def _read_under(
    blocks: BlockReader, name: CollectionName, record: CollectionRecord, head: Head
) -> CollectionState:
    directories = await _read_directories(blocks.reader, name, record.number)
    bare = CollectionState(name, record, head, directories, Centroids.none(record.dimensions))
    centroids = await blocks.contents(bare, _CENTROIDS, bare.directory(_CENTROIDS).lows.tolist(), VectorBlock)
    deleted, hidden = [await _read_ids(blocks, bare, family) for family in (Family.DELETED, Family.HIDDEN)]
    merged = VectorBlock.merge(list(centroids.values())) if centroids else None
    if merged is None:
        return replace(bare, deleted=deleted, hidden=hidden)
    return replace(bare, centroids=Centroids(merged.ids, merged.vectors), deleted=deleted, hidden=hidden)


async def _read_directories(reader: Reader, name: CollectionName, number: int) -> dict[Shelf, Directory]:
    pages: dict[Shelf, list[tuple[int, Array]]] = {}
    async for entries in reader.scan_prefix(pages_prefix(number)):
        for key, value in entries:
            shelf, low = parse_page_key(key)
            try:
                pages.setdefault(shelf, []).append((low, decode_page(value)))
            except Corrupt as error:
                raise Corrupt(f"the directory of {shelf} of {name} cannot be read", str(error)) from error
    return {shelf: directory_of(found) for shelf, found in pages.items()}


async def _read_ids(blocks: BlockReader, state: CollectionState, family: Family) -> IdSet:
    shelf = Shelf(family)
    found = await blocks.contents(state, shelf, state.directory(shelf).lows.tolist(), IdBlock)
    ids = np.concatenate([block.ids for block in found.values()]) if found else np.empty(0, np.int64)
    return IdSet.of(ids, state.head.next_id)
