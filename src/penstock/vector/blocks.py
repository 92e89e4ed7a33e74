"""Reading buckets: fragments fetched together, checked, merged and kept decoded.

A damaged block is either an error that names it, or, for a reader that can do without, an entry in its
`Damage` while everything else is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from penstock.errors import Corrupt, Unavailable
from penstock.keyvalue import Reader, get_each
from penstock.observability import SILENT, Observer, names
from penstock.vector.arrays import Array
from penstock.vector.cache import BlockCache, Entry, Sized
from penstock.vector.content import ColumnBlock, Content, IdBlock, PostingBlock, VectorBlock
from penstock.vector.directory import Directory
from penstock.vector.documents import DocumentBlock
from penstock.vector.identity import DictionaryBlock
from penstock.vector.keys import Address, Family, Shelf, fragment_key
from penstock.vector.state import CollectionState
from penstock.vector.terms import TermBlock

__all__ = ["CONTENT", "BlockReader", "Damage", "StateMoved"]

CONTENT: Final[dict[Family, type[Content]]] = {
    Family.VECTORS: VectorBlock,
    Family.NAMES: ColumnBlock,
    Family.TEXTS: ColumnBlock,
    Family.COLUMN: ColumnBlock,
    Family.DICTIONARY: DictionaryBlock,
    Family.POSTINGS: PostingBlock,
    Family.TERMS: TermBlock,
    Family.DOCUMENTS: DocumentBlock,
    Family.CENTROIDS: VectorBlock,
    Family.DELETED: IdBlock,
    Family.HIDDEN: IdBlock,
}

# Bytes asked of the store in one call: the memory that reading needs on top of what is kept.
_FETCH_BYTES: Final = 16 << 20

C = TypeVar("C", bound=Content)
S = TypeVar("S", bound=Sized)


class StateMoved(Unavailable):
    """A follower's state is older than the store: what it lists was replaced. It reads the state again."""


@dataclass(slots=True)
class Damage:
    """Blocks that could not be read, by name: an answer without them is partial."""

    blocks: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.blocks)


@dataclass(frozen=True, slots=True)
class _Opened(Generic[S]):
    """Kept blocks of a shelf by their lowest key, as one directory has them: no names to be made and looked up."""

    directory: Directory
    entries: dict[int, Entry[S]]


class BlockReader:
    """Reads buckets of any collection from one view of the store."""

    def __init__(self, reader: Reader, cache: BlockCache, *, moving: bool = False, observer: Observer = SILENT) -> None:
        self.reader = reader
        self.cache = cache
        # Whether the view may advance under a reader, as a follower's does.
        self.moving = moving
        self._observer = observer

    def over(self, reader: Reader) -> BlockReader:
        """The same over another view of the store."""
        return BlockReader(reader, self.cache, moving=self.moving, observer=self._observer)

    async def contents(
        self,
        state: CollectionState,
        shelf: Shelf,
        lows: Iterable[int],
        kind: type[C],
        damage: Damage | None = None,
    ) -> dict[int, C]:
        """Buckets by their lowest key, in the order asked for. One with nothing in it, or readable, is left out."""

        def merge(parts: Sequence[C]) -> C:
            return kind.merge(parts)

        return await self.built(state, shelf, lows, kind, merge, kind, damage)

    async def built(
        self,
        state: CollectionState,
        shelf: Shelf,
        lows: Iterable[int],
        kind: type[C],
        build: Callable[[Sequence[C]], S],
        result: type[S],
        damage: Damage | None = None,
    ) -> dict[int, S]:
        """Buckets as `build` makes them of their fragments, kept in that form."""
        opened = self._opened(state, shelf, result)
        found: dict[int, S] = {}
        missing: dict[int, Array] = {}
        asked = list(lows)
        for low in asked:
            entry = opened.entries.get(low) or self._reopen(state, shelf, opened, low, result)
            if entry is not None:
                entry.used = True
                found[low] = entry.block
            elif len(fragments := opened.directory.bucket(low)):
                missing[low] = fragments
        self.cache.count(len(found), len(missing))
        for group in _groups(missing):
            parts = await self._fetch(state, shelf, group, kind, damage)
            for low, fragments in group:
                if len(parts[low]):
                    found[low] = build(parts[low])
                if len(parts[low]) == len(fragments):
                    self.cache.put(_name(state, shelf, opened.directory, low, result), found[low])
        # What was kept came first: whoever joins buckets joins them in the order they asked for.
        return {low: found[low] for low in asked if low in found} if missing else found

    def _opened(self, state: CollectionState, shelf: Shelf, result: type[S]) -> _Opened[S]:
        name, directory = (state.number, shelf, result), state.directory(shelf)
        opened = self.cache.made(name, _Opened)
        if opened is None or opened.directory is not directory:
            opened = _Opened(directory, {})
            self.cache.keep(name, opened)
        return opened

    def _reopen(
        self, state: CollectionState, shelf: Shelf, opened: _Opened[S], low: int, result: type[S]
    ) -> Entry[S] | None:
        """A block that is in the cache and was not looked for under this directory yet."""
        entry = self.cache.get(_name(state, shelf, opened.directory, low, result), result)
        if entry is not None:
            opened.entries[low] = entry
        return entry

    async def fragments(
        self, state: CollectionState, addresses: Sequence[Address], damage: Damage | None = None
    ) -> list[Content | None]:
        """Single fragments, decoded and not kept, in the order asked for."""
        values = await get_each(self.reader, [fragment_key(state.number, address) for address in addresses])
        return [
            self._decode(state, address, CONTENT[address.shelf.family], value, damage)
            for address, value in zip(addresses, values, strict=True)
        ]

    async def _fetch(
        self,
        state: CollectionState,
        shelf: Shelf,
        group: list[tuple[int, Array]],
        kind: type[C],
        damage: Damage | None,
    ) -> dict[int, list[C]]:
        addresses = [Address(shelf, low, int(serial)) for low, rows in group for serial in rows["serial"]]
        values = await get_each(self.reader, [fragment_key(state.number, address) for address in addresses])
        parts: dict[int, list[C]] = {low: [] for low, _ in group}
        for address, value in zip(addresses, values, strict=True):
            content = self._decode(state, address, kind, value, damage)
            if content is not None:
                parts[address.low].append(content)
        return parts

    def _decode(
        self,
        state: CollectionState,
        address: Address,
        kind: type[C],
        value: bytes | Corrupt | None,
        damage: Damage | None,
    ) -> C | None:
        try:
            if isinstance(value, Corrupt):
                raise value
            if value is not None:
                return kind.decode(address.shelf.family, value)
            if self.moving:
                raise StateMoved(f"{address} of {state.name} is gone", "the writer replaced it meanwhile", "read again")
            raise Corrupt("a block is missing", "the directory lists it and the store does not have it")
        except Corrupt as error:
            self.lose(f"{address} of {state.name}", error, damage)
            return None

    def lose(self, named: str, error: Corrupt, damage: Damage | None) -> None:
        """Tell of a block that cannot be read; without `damage` nobody can do without it."""
        self._observer.event(names.VECTOR_BLOCK_CORRUPT, block=named, why=str(error))
        if damage is None:
            raise Corrupt(f"{named} cannot be read", str(error), "restore it, or write its rows again") from error
        damage.blocks.append(named)


def _name(state: CollectionState, shelf: Shelf, directory: Directory, low: int, result: type[S]) -> Hashable:
    """What a block is kept under: its newest serial stands for its bytes."""
    return state.number, shelf, low, directory.version(low), result


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
