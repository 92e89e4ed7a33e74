"""Do the indexes and the data agree? Everything is read, and whatever does not fit is reported in words.

Checked: every listed block is there and whole, with as many rows as the directory says; every living row has
exactly one vector, one name and one place in a list; the dictionary leads from each visible name to its row and
to no other; words, lengths and texts belong together; the head's counts are right; nothing lies unlisted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyroaring

from penstock.errors import Corrupt
from penstock.vector.arrays import Array, Ids
from penstock.vector.blocks import CONTENT, BlockReader, Damage
from penstock.vector.content import ColumnBlock, Content
from penstock.vector.identity import ABSENT, DictionaryBlock, identities_of
from penstock.vector.keys import Address, Family, Shelf, fragments_prefix, parse_fragment_key
from penstock.vector.lookup import find_rows
from penstock.vector.state import LENGTHS, CollectionState
from penstock.vector.terms import TermBlock

__all__ = ["VerifyReport", "verify_collection"]

# Problems reported of one kind: the first few tell what is wrong.
_EXAMPLES_MAX: Final = 20


@dataclass(slots=True)
class VerifyReport:
    """What was looked at, and what is wrong."""

    collection: str
    rows: int = 0
    blocks: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.problems

    def note(self, problem: str) -> None:
        if len(self.problems) < _EXAMPLES_MAX:
            self.problems.append(problem)


async def verify_collection(blocks: BlockReader, state: CollectionState) -> VerifyReport:
    """Check one collection at one moment."""
    report = VerifyReport(str(state.name), state.head.rows)
    check = _Check(blocks, state, report)
    await check.blocks_are_whole()
    if report.sound:
        await check.rows_are_complete()
        await check.names_lead_to_rows()
        await check.words_belong_to_texts()
        check.counts_are_right()
    await check.nothing_lies_unlisted()
    return report


class _Check:
    def __init__(self, blocks: BlockReader, state: CollectionState, report: VerifyReport) -> None:
        self._blocks = blocks
        self._state = state
        self._report = report
        self._living = state.deleted.complement(state.head.next_id)

    async def blocks_are_whole(self) -> None:
        """Every fragment that is listed can be read and has the rows it should."""
        damage = Damage(self._state.lost_of(tuple(Family)))
        for shelf, directory in self._state.directories.items():
            for fragment in directory.fragments:
                address = Address(shelf, int(fragment["low"]), int(fragment["serial"]))
                (content,) = await self._blocks.fragments(self._state, [address], damage)
                self._report.blocks += 1
                if content is not None and len(content) != fragment["rows"]:
                    self._report.note(f"{address} has {len(content)} rows, and {fragment['rows']} are listed")
        for block in dict.fromkeys(damage.blocks):
            self._report.note(f"{block} cannot be read")

    async def rows_are_complete(self) -> None:
        """Each living row lies once in the vectors, once in the names and once in a list."""
        wanted = pyroaring.BitMap64(self._living.ids())
        for family in (Family.VECTORS, Family.NAMES, Family.POSTINGS):
            found = pyroaring.BitMap64()
            async for content in self._contents(Shelf(family)):
                ids = content.ids[self._living.contains(content.ids)]
                fresh = pyroaring.BitMap64(ids)
                if len(fresh) != len(ids) or found & fresh:
                    self._report.note(f"a row lies twice in the {family.name.lower()}")
                found |= fresh
            self._compare(family.name.lower(), found, wanted)

    async def names_lead_to_rows(self) -> None:
        """The dictionary finds every visible row by its name, and has no more living entries than rows."""
        async for content in self._contents(Shelf(Family.NAMES)):
            assert isinstance(content, ColumnBlock)
            shown = self._state.visible.contains(content.ids)
            names = content.values.filter(pa.array(shown))
            found = await find_rows(self._blocks, self._state, identities_of(names))
            for place in np.flatnonzero(found != content.ids[shown])[:_EXAMPLES_MAX].tolist():
                row = content.ids[shown][place]
                self._report.note(f"{names[place].as_py()!r} is row {row}, and the dictionary says {found[place]}")
        entries = 0
        async for block in self._contents(Shelf(Family.DICTIONARY)):
            assert isinstance(block, DictionaryBlock)
            entries += int(((block.ids != ABSENT) & self._living.contains(block.ids)).sum())
        living = len(self._living)
        if entries != living:
            self._report.note(f"the dictionary has {entries} living entries, and there are {living} living rows")

    async def words_belong_to_texts(self) -> None:
        """Words counted row by row are the lengths of the texts."""
        lengths = await self._totals(LENGTHS)
        words = await self._totals(Shelf(Family.TERMS))
        texts = pyroaring.BitMap64()
        async for content in self._contents(Shelf(Family.TEXTS)):
            texts |= pyroaring.BitMap64(content.ids[self._living.contains(content.ids)])
        for row in np.flatnonzero(lengths != words)[:_EXAMPLES_MAX].tolist():
            self._report.note(f"row {row} has {lengths[row]} words in its text and {words[row]} in the index")
        extra = np.flatnonzero(lengths)
        if len(pyroaring.BitMap64(extra) - texts):
            self._report.note("a row has a length and no text")

    def counts_are_right(self) -> None:
        head, state = self._state.head, self._state
        for name, counted, kept in (
            ("visible rows", len(state.visible), head.rows),
            ("hidden rows", len(state.hidden), head.hidden),
        ):
            if counted != kept:
                self._report.note(f"there are {counted} {name}, and the head says {kept}")

    async def nothing_lies_unlisted(self) -> None:
        """Every fragment in the store is listed."""
        listed = {
            (shelf, int(fragment["low"]), int(fragment["serial"]))
            for shelf, directory in self._state.directories.items()
            for fragment in directory.fragments
        }
        async for entries in self._blocks.reader.scan_prefix(fragments_prefix(self._state.number)):
            for key, _ in entries:
                address = parse_fragment_key(key)
                if tuple(address) not in listed:
                    self._report.note(f"{address} lies in the store and is not listed")

    async def _totals(self, shelf: Shelf) -> Array:
        """Words of each living row, as one shelf counts them."""
        totals = np.zeros(self._state.head.next_id, np.int64)
        async for content in self._contents(shelf):
            counts: Array = content.counts if isinstance(content, TermBlock) else np.empty(0)
            if isinstance(content, ColumnBlock):
                counts = content.values.to_numpy()
            living: Array = self._living.contains(content.ids)
            np.add.at(totals, content.ids[living], counts[living].astype(np.int64))
        return totals

    async def _contents(self, shelf: Shelf) -> AsyncIterator[Content]:
        """Buckets one by one, so that a check needs no more memory than a search."""
        for low in self._state.directory(shelf).lows.tolist():
            kind: type[Content] = CONTENT[shelf.family]
            for content in (await self._blocks.contents(self._state, shelf, [low], kind)).values():
                yield content

    def _compare(self, place: str, found: pyroaring.BitMap64, wanted: pyroaring.BitMap64) -> None:
        missing: Ids = np.array(list((wanted - found)[:_EXAMPLES_MAX]), np.int64)
        if len(missing):
            self._report.note(f"rows missing from the {place}: {missing.tolist()}")


def corrupt(report: VerifyReport) -> Corrupt:
    """The error of a collection that is not sound."""
    return Corrupt(f"{report.collection} is not sound", "; ".join(report.problems), "write the rows named again")
