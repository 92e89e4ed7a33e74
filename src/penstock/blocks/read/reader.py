"""Reading buckets: fragments fetched together, checked, merged and kept decoded.

A damaged block is either an error that names it, or, for a reader that can do without, an entry in its
`Damage` while everything else is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from penstock.blocks.format.arrays import Array
from penstock.blocks.format.directory import EMPTY
from penstock.blocks.format.keys import Address, Shelf, fragment_key
from penstock.blocks.format.shelves import Shelves
from penstock.blocks.format.store_format import Block, StoreFormat
from penstock.blocks.read.cache import BlockCache, CacheEntry, Sized
from penstock.blocks.read.single_flight import SingleFlight
from penstock.errors import Corrupt, Unavailable
from penstock.keyvalue import Reader, get_each
from penstock.observability import SILENT, Observer, names

__all__ = ["BlockReader", "Damage", "StateMoved"]

# Bytes asked of the store in one call: the memory that reading needs on top of what is kept.
_FETCH_BYTES: Final = 16 << 20

B = TypeVar("B", bound=Block)
S = TypeVar("S", bound=Sized)


class StateMoved(Unavailable):
    """A follower's state is older than the store: what it lists was replaced. It reads the state again."""


@dataclass(slots=True)
class Damage:
    """Blocks that could not be read, by name: an answer without them is partial."""

    blocks: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.blocks)


class BlockReader:
    """Reads buckets beneath any prefix from one view of the store."""

    def __init__(
        self,
        reader: Reader,
        format: StoreFormat,
        cache: BlockCache,
        *,
        moving: bool = False,
        observer: Observer = SILENT,
    ) -> None:
        self.reader = reader
        self.format = format
        self.cache = cache
        # Whether the view may advance under a reader, as a follower's does.
        self.moving = moving
        self._observer = observer

    def over(self, reader: Reader) -> BlockReader:
        """The same over another view of the store."""
        return BlockReader(reader, self.format, self.cache, moving=self.moving, observer=self._observer)

    async def contents(
        self,
        state: Shelves,
        shelf: Shelf,
        lows: Iterable[int],
        kind: type[B],
        damage: Damage | None = None,
    ) -> dict[int, B]:
        """Buckets by their lowest key, in the order asked for. One with nothing in it, or nothing readable, is left out."""

        def merge(parts: Sequence[B]) -> B:
            return kind.merge(parts)

        return await self.built(state, shelf, lows, kind, merge, kind, damage)

    async def built(
        self,
        state: Shelves,
        shelf: Shelf,
        lows: Iterable[int],
        kind: type[B],
        build: Callable[[Sequence[B]], S],
        result: type[S],
        damage: Damage | None = None,
    ) -> dict[int, S]:
        """Buckets as `build` makes them of their fragments, kept in that form, in the order asked for."""
        asked = list(lows)
        directory, entries = state.directory(shelf), self._entries(state, shelf, result)
        found: dict[int, S] = {}
        missing: dict[int, Array] = {}
        for low in asked:
            entry = entries.get(low)
            if entry is None or entry.block is None:
                entry = self._reopened(state, shelf, low, result)
            if entry is not None and (block := entry.block) is not None:
                entry.used = True
                found[low] = block
            elif len(fragments := directory.bucket(low)):
                missing[low] = fragments
        self.cache.count(len(found), len(missing))
        if not missing:
            return found
        read = _Read(state, shelf, kind, build, result, damage)
        found |= await self._read_once(read, missing)
        return {low: found[low] for low in asked if low in found}

    def held(self, state: Shelves, shelf: Shelf, lows: Sequence[int], result: type[S]) -> list[S] | None:
        """Buckets in the order asked for, if all of them are in memory and were read under this state before.

        Not counted as reads of the cache: callers that use them tell it, once for all that they hold.
        """
        kept = self._entries(state, shelf, result)
        found: list[S] = []
        try:
            for low in lows:
                entry = kept[low]
                if (block := entry.block) is None:
                    return None
                entry.used = True
                found.append(block)
        except KeyError:
            return None
        return found

    def _entries(self, state: Shelves, shelf: Shelf, result: type[S]) -> dict[int, CacheEntry[S]]:
        """Kept blocks of a shelf by their lowest key, as a directory has them: no names to be made and looked up."""
        directory = state.directory(shelf)
        # The empty one is shared by all stores, and must hold on to none of them.
        return {} if directory is EMPTY else directory.kept.setdefault((self.cache, result), {})

    def _reopened(self, state: Shelves, shelf: Shelf, low: int, result: type[S]) -> CacheEntry[S] | None:
        """A block that is in the cache and was not looked for under this directory yet."""
        entry = self.cache.get(_name(state, shelf, low, result), result)
        if entry is not None:
            self._entries(state, shelf, result)[low] = entry
        return entry

    async def _read_once(self, read: _Read[B, S], missing: dict[int, Array]) -> dict[int, S]:
        """Missing buckets: those that somebody else is reading are waited for, the others read for all."""
        flights = self.cache.flights
        others = {low: flight for low in missing if (flight := flights.get(read.name(low))) is not None}
        mine = {low: fragments for low, fragments in missing.items() if low not in others}
        found: dict[int, S] = {}
        with flights.leading(map(read.name, mine)) as begun:
            for group in _groups(mine):
                found |= await self._load(read, group, begun)
        unread: dict[int, Array] = {}
        for low, flight in others.items():
            block = await flight.landed()
            if block is None:
                unread[low] = missing[low]
            else:
                assert isinstance(block, read.result)
                found[low] = block
        for group in _groups(unread):
            found |= await self._load(read, group, {})
        return found

    async def _load(
        self, read: _Read[B, S], group: list[tuple[int, Array]], begun: Mapping[Hashable, SingleFlight[Sized]]
    ) -> dict[int, S]:
        """Read some buckets, keep those that are whole, and hand them to whoever waits for them."""
        parts = await self._fetch(read.state, read.shelf, group, read.kind, read.damage)
        found: dict[int, S] = {}
        for low, fragments in group:
            if len(parts[low]):
                found[low] = read.build(parts[low])
            if len(parts[low]) == len(fragments):
                name = read.name(low)
                entry = self.cache.put(name, found[low])
                if entry is not None:
                    self._entries(read.state, read.shelf, read.result)[low] = entry
                if name in begun:
                    begun[name].land(found[low])
        return found

    async def fragments(
        self, state: Shelves, addresses: Sequence[Address], damage: Damage | None = None
    ) -> list[Block | None]:
        """Single fragments, decoded and not kept, in the order asked for."""
        values = await get_each(self.reader, [fragment_key(state.prefix, address) for address in addresses])
        return [
            self._decode(state, address, self.format.blocks[address.shelf.family], value, damage)
            for address, value in zip(addresses, values, strict=True)
        ]

    async def _fetch(
        self,
        state: Shelves,
        shelf: Shelf,
        group: list[tuple[int, Array]],
        kind: type[B],
        damage: Damage | None,
    ) -> dict[int, list[B]]:
        addresses = [Address(shelf, low, int(serial)) for low, rows in group for serial in rows["serial"]]
        values = await get_each(self.reader, [fragment_key(state.prefix, address) for address in addresses])
        parts: dict[int, list[B]] = {low: [] for low, _ in group}
        for address, value in zip(addresses, values, strict=True):
            content = self._decode(state, address, kind, value, damage)
            if content is not None:
                parts[address.low].append(content)
        return parts

    def _decode(
        self,
        state: Shelves,
        address: Address,
        kind: type[B],
        value: bytes | Corrupt | None,
        damage: Damage | None,
    ) -> B | None:
        try:
            if isinstance(value, Corrupt):
                raise value
            if value is not None:
                return self.format.decode(address.shelf.family, value, kind)
            if self.moving:
                raise StateMoved(f"{address} of {state.name} is gone", "the writer replaced it meanwhile", "read again")
            raise Corrupt("a block is missing", "the directory lists it, but the store does not have it")
        except Corrupt as error:
            self.lose(f"{address} of {state.name}", error, damage)
            return None

    def lose(self, named: str, error: Corrupt, damage: Damage | None) -> None:
        """Tell of a block that cannot be read; without `damage` nobody can do without it."""
        self._observer.event(names.BLOCKS_CORRUPT, store=self.format.label, block=named, why=str(error))
        if damage is None:
            raise Corrupt(f"{named} cannot be read", str(error), "restore it, or write its rows again") from error
        damage.blocks.append(named)


@dataclass(frozen=True, slots=True)
class _Read(Generic[B, S]):
    """What is being read, how it is built, and where damage is noted."""

    state: Shelves
    shelf: Shelf
    kind: type[B]
    build: Callable[[Sequence[B]], S]
    result: type[S]
    damage: Damage | None

    def name(self, low: int) -> Hashable:
        return _name(self.state, self.shelf, low, self.result)


def _name(state: Shelves, shelf: Shelf, low: int, result: type[S]) -> Hashable:
    """What a block is kept under: its newest serial stands for its bytes."""
    return state.prefix, shelf, low, state.directory(shelf).version(low), result


def _groups(missing: Mapping[int, Array]) -> Iterator[list[tuple[int, Array]]]:
    """Buckets in groups of a bounded size on disk."""
    group: list[tuple[int, Array]] = []
    size = 0
    for low, fragments in missing.items():
        group.append((low, fragments))
        size += int(fragments["bytes"].sum())
        if size >= _FETCH_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
