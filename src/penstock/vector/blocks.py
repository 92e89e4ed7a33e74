"""Reading buckets: fragments fetched together, checked, merged and kept decoded.

A damaged block is either an error that names it, or, for a reader that can do without, an entry in its
`Damage` while everything else is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from penstock.errors import Corrupt, Unavailable
from penstock.keyvalue import Reader
from penstock.observability import SILENT, Observer, names
from penstock.vector.arrays import Array
from penstock.vector.cache import BlockCache, Sized
from penstock.vector.content import ColumnBlock, Content, IdBlock, PostingBlock, VectorBlock
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
        """Buckets by their lowest key. A bucket with nothing in it, or nothing readable, is left out."""

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
        found: dict[int, S] = {}
        missing: list[tuple[int, Array]] = []
        directory, number = state.directory(shelf), state.number
        for low in lows:
            version = directory.version(low)
            block = self.cache.get((number, shelf, low, version, result), result)
            if block is not None:
                found[low] = block
            elif version:
                missing.append((low, directory.bucket(low)))
        self.cache.count(len(found), len(missing))
        for group in _groups(missing):
            parts = await self._fetch(state, shelf, group, kind, damage)
            for low, fragments in group:
                if len(parts[low]):
                    found[low] = build(parts[low])
                if len(parts[low]) == len(fragments):
                    self.cache.put((number, shelf, low, directory.version(low), result), found[low])
        return found

    async def fragments(
        self, state: CollectionState, addresses: Sequence[Address], damage: Damage | None = None
    ) -> list[Content | None]:
        """Single fragments, decoded and not kept, in the order asked for."""
        values = await self.reader.get_many([fragment_key(state.number, address) for address in addresses])
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
        values = await self.reader.get_many([fragment_key(state.number, address) for address in addresses])
        parts: dict[int, list[C]] = {low: [] for low, _ in group}
        for address, value in zip(addresses, values, strict=True):
            content = self._decode(state, address, kind, value, damage)
            if content is not None:
                parts[address.low].append(content)
        return parts

    def _decode(
        self, state: CollectionState, address: Address, kind: type[C], value: bytes | None, damage: Damage | None
    ) -> C | None:
        try:
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


def _groups(missing: list[tuple[int, Array]]) -> Iterator[list[tuple[int, Array]]]:
    """Buckets in groups of a bounded size on disk."""
    group: list[tuple[int, Array]] = []
    size = 0
    for low, fragments in missing:
        group.append((low, fragments))
        size += int(fragments["bytes"].sum())
        if size >= _FETCH_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
