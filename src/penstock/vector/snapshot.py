"""One moment of the whole store: its view of the key-value store, collections as far as they were needed, positions.

A snapshot is shared by everybody who reads that moment and closed when the last of them is done and a newer
one is published.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.errors import Corrupt
from penstock.keyvalue import Reader
from penstock.vector.block import FORMAT_VERSION, Kind, newer_format, unseal
from penstock.vector.blocks import BlockReader
from penstock.vector.flights import Flights
from penstock.vector.keys import (
    COLLECTION_DATA,
    COLLECTIONS,
    POSITIONS,
    STORE,
    CollectionName,
    collection_number,
    parse_collection_key,
)
from penstock.vector.reading import read_state
from penstock.vector.state import CollectionRecord, CollectionState, StoreRecord, decode_record

__all__ = [
    "Positions",
    "VectorSnapshot",
    "check_format",
    "list_collections",
    "read_positions",
    "read_store",
    "rebuilt_store",
    "record_problems",
]

# Numbers left out when it is not known how many were given out: more than collections are ever dropped in a row.
_NUMBERS_SKIPPED: Final = 1 << 16


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
    # States that are being read. They are of this moment: the next one begins with none.
    _reading: Flights[CollectionState | None] = field(default_factory=Flights, init=False)

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
        if state is not None:
            self.states.move_to_end(name)
            return state
        state = await self._reading.share(name, lambda: read_state(self.blocks, name))
        # All who waited for it use the same one: what is kept for its directories is kept once.
        return None if state is None else self.states.setdefault(name, state)

    def without(self, dropped: Set[CollectionName]) -> VectorSnapshot:
        """The same, not knowing collections that are about to be gone."""
        if not dropped:
            return self
        kept = OrderedDict((name, state) for name, state in self.states.items() if name not in dropped)
        return replace(self, states=kept)

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
    """The store's own record; that of an empty store if there is none, and nothing else."""
    value = await reader.get(STORE)
    if value is None:
        return await rebuilt_store(reader)
    record = decode_record(Kind.STORE, value, StoreRecord, "the record of the store")
    if record.format > FORMAT_VERSION:
        raise newer_format(record.format)
    return record


async def check_format(reader: Reader) -> None:
    """Raise `Unsupported` if the store has a newer format. One whose record is damaged is of this format."""
    with suppress(Corrupt):
        await read_store(reader)


async def rebuilt_store(reader: Reader) -> StoreRecord:
    """The store's record as its collections tell it: no number that may ever have been given out is given out again."""
    highest = -1
    async for entries in reader.scan_prefix(COLLECTIONS):
        for _, value in entries:
            with suppress(Corrupt):
                highest = max(highest, decode_record(Kind.COLLECTION, value, CollectionRecord).number)
    async for entries in reader.scan_prefix(COLLECTION_DATA, reverse=True, block_bytes=1):
        highest = max(highest, collection_number(entries[0][0]))
        break
    return StoreRecord(FORMAT_VERSION, highest + 1 + _NUMBERS_SKIPPED if highest >= 0 else 0)


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions of sources, and those that cannot be read."""

    known: dict[str, int]
    unknown: dict[str, Corrupt]

    def of(self, source: str) -> int | None:
        if source in self.unknown:
            raise self.unknown[source]
        return self.known.get(source)


async def read_positions(reader: Reader) -> Positions:
    found = Positions({}, {})
    async for entries in reader.scan_prefix(POSITIONS):
        for key, value in entries:
            source = key[len(POSITIONS) :].decode()
            try:
                found.known[source] = int.from_bytes(unseal(Kind.POSITION, value), "little")
            except Corrupt as error:
                remedy = f"state it with `penstock vector repair --position {source}=NUMBER`"
                found.unknown[source] = Corrupt(f"the position of {source!r} cannot be read", str(error), remedy)
    return found


async def record_problems(reader: Reader) -> list[str]:
    """What is wrong with the records that belong to no collection."""
    problems = []
    try:
        await read_store(reader)
    except Corrupt as error:
        problems.append(str(error))
    return problems + [str(error) for error in (await read_positions(reader)).unknown.values()]


async def list_collections(reader: Reader) -> list[CollectionName]:
    """The names of all collections, in order."""
    found: list[CollectionName] = []
    async for entries in reader.scan_prefix(COLLECTIONS):
        found += [parse_collection_key(key) for key, _ in entries]
    return sorted(found)
