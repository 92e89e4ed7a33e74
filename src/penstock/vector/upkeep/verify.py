"""Do the indexes and the data agree? Everything is read, and whatever does not fit is reported in words.

Checked: every listed block is there and whole, with as many rows as the directory says; every living row has exactly one
name, and one vector and one place in a list that has a centre, with a code of that vector, or neither and a text; the
dictionary leads from each visible name to its row and to no other; words and lengths are those of the texts, attributes
of their types, and documents show their current version; the head's counts are right; nothing lies unlisted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyroaring

from penstock.blocks import Address, BlockReader, Damage, Shelf, fragments_prefix
from penstock.errors import PenstockError
from penstock.vector.format.content import ColumnBlock, PostingBlock, RowBlock, VectorBlock
from penstock.vector.format.document_log import DocumentBlock
from penstock.vector.format.identity import ABSENT, DictionaryBlock, identities_of
from penstock.vector.format.keys import CollectionName, Family
from penstock.vector.format.state import LENGTHS, CollectionState
from penstock.vector.format.store_format import FORMAT, ROW_BLOCKS
from penstock.vector.format.terms import TermBlock, count_words
from penstock.vector.read.lookup import find_rows
from penstock.vector.upkeep.agreement import Shadows, WordSums, shown_by_documents

__all__ = ["RECORDS", "VerifyReport", "unreadable", "verify_collection"]

# What a report is called that is of no collection.
RECORDS: Final = "the records of the store"

_POSTINGS: Final = Shelf(Family.POSTINGS)

# Problems reported of one kind: the first few tell what is wrong.
_EXAMPLES_MAX: Final = 20


@dataclass(slots=True)
class VerifyReport:
    """What was checked, and its problems: the first problems in words, and how many more there are."""

    collection: str
    rows: int = 0
    blocks: int = 0
    problems: list[str] = field(default_factory=list)
    more_problems: int = 0

    @property
    def sound(self) -> bool:
        return not self.problems

    def note(self, problem: str) -> None:
        if len(self.problems) < _EXAMPLES_MAX:
            self.problems.append(problem)
        else:
            self.more_problems += 1


async def verify_collection(blocks: BlockReader, state: CollectionState) -> VerifyReport:
    """Check one collection at one moment."""
    report = VerifyReport(str(state.name), state.head.rows)
    check = _Check(blocks, state, report)
    await check.blocks_are_whole()
    if report.sound:
        await check.rows_are_complete()
        await check.codes_are_of_their_vectors()
        await check.names_lead_to_rows()
        await check.words_are_those_of_the_texts()
        await check.attributes_are_of_their_type()
        await check.documents_show_their_current_version()
        check.counts_are_right()
    await check.nothing_lies_unlisted()
    return report


def unreadable(name: CollectionName, error: PenstockError) -> VerifyReport:
    """The report of a collection that cannot even be opened."""
    return VerifyReport(str(name), problems=[str(error)])


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
        """Each living row lies once in the names, and once both in the vectors and in a list, or in neither."""
        living = pyroaring.BitMap64(self._living.ids())
        families = (Family.NAMES, Family.VECTORS, Family.POSTINGS, Family.TEXTS)
        named, placed, listed, told = [await self._rows_once(Shelf(family)) for family in families]
        for what, missing in (
            ("missing from the names", living - named),
            ("missing from the vectors", listed - placed),
            ("missing from the postings", placed - listed),
            ("with neither a vector nor a text", living - placed - listed - told),
        ):
            if missing:
                self._report.note(f"rows {what}: {list(missing[:_EXAMPLES_MAX])}")

    async def codes_are_of_their_vectors(self) -> None:
        """Lists have centres, by which they are found, and hold codes of the vectors of their rows."""
        state = self._state
        numbers = state.directory(_POSTINGS).lows.astype(np.int64)
        for number in np.setdiff1d(numbers, state.centroids.lists).tolist():
            self._report.note(f"list {number} has rows and no centre")
        shadows = Shadows(state.metric, state.dimensions, state.head.next_id)
        async for content in self._contents(Shelf(Family.VECTORS)):
            assert isinstance(content, VectorBlock)
            shadows.cast(content.ids, content.vectors)
        async for content in self._contents(_POSTINGS):
            assert isinstance(content, PostingBlock)
            wrong = self._living.contains(content.ids)
            wrong[wrong] = shadows.disagree(content.ids[wrong], content.codes[wrong])
            for row in content.ids[wrong].tolist():
                self._report.note(f"row {row} is in a list with the code of another vector")

    async def names_lead_to_rows(self) -> None:
        """The dictionary finds every visible row by its name, and has no more living entries than rows."""
        async for content in self._contents(Shelf(Family.NAMES)):
            assert isinstance(content, ColumnBlock)
            shown = self._state.visible.contains(content.ids)
            names = content.values.filter(pa.array(shown))
            found = await find_rows(self._blocks, self._state, identities_of(names))
            for place in np.flatnonzero(found != content.ids[shown]).tolist():
                row = content.ids[shown][place]
                self._report.note(f"{names[place].as_py()!r} is row {row}, and the dictionary says {found[place]}")
        entries = 0
        async for block in self._contents(Shelf(Family.DICTIONARY)):
            assert isinstance(block, DictionaryBlock)
            entries += int(((block.ids != ABSENT) & self._living.contains(block.ids)).sum())
        living = len(self._living)
        if entries != living:
            self._report.note(f"the dictionary has {entries} living entries, and there are {living} living rows")

    async def words_are_those_of_the_texts(self) -> None:
        """Texts counted anew give the lengths and the words that searches go by."""
        state, rows = self._state, self._state.head.next_id
        told, indexed = WordSums(rows), WordSums(rows)
        counted, kept = np.full(rows, -1, np.int64), np.full(rows, -1, np.int64)
        async for texts in self._living_values(Shelf(Family.TEXTS)):
            words = count_words(texts.values, state.stored_analysis)
            told.add_texts(texts.ids, words)
            counted[texts.ids] = words.lengths
        async for lengths in self._living_values(LENGTHS):
            kept[lengths.ids] = lengths.values.to_numpy()
        async for content in self._contents(Shelf(Family.TERMS)):
            assert isinstance(content, TermBlock)
            indexed.add_index(content, self._living.contains(content.ids))
        for row in np.flatnonzero(counted != kept).tolist():
            self._report.note(f"row {row} has {_told(counted[row])} in its text and {_told(kept[row])} kept")
        for row in told.disagree(indexed).tolist():
            self._report.note(f"row {row} is indexed under other words than its text has")
        shown = (counted >= 0) & state.visible.mask()
        self._compare("texts to be found", int(shown.sum()), state.head.texts)
        self._compare("words to be found", int(counted[shown].sum()), state.head.words)

    async def attributes_are_of_their_type(self) -> None:
        """Each attribute that has a block is known, has values of its type, and at most one a row."""
        types = {record.number: record for record in self._state.head.attributes}
        for shelf in self._state.directories:
            if shelf.family is not Family.COLUMN or shelf == LENGTHS:
                continue
            record = types.get(shelf.column)
            if record is None:
                self._report.note(f"{shelf} has values and no name")
                continue
            await self._rows_once(shelf)
            async for content in self._contents(shelf):
                assert isinstance(content, ColumnBlock)
                if content.values.type != record.type.arrow:
                    self._report.note(f"attribute {record.name!r} is {record.type}, and {shelf} {content.values.type}")

    async def documents_show_their_current_version(self) -> None:
        """Rows of a current version are visible, those of others hidden, and no row is hidden for no document."""
        hidden = self._state.hidden
        for_documents = pyroaring.BitMap64()
        async for block in self._contents(Shelf(Family.DOCUMENTS)):
            assert isinstance(block, DocumentBlock)
            ids, shown = shown_by_documents(block)
            living = self._living.contains(ids)
            ids, shown = ids[living], shown[living]
            for_documents |= pyroaring.BitMap64(ids)
            for row in ids[hidden.contains(ids) == shown].tolist():
                self._report.note(f"row {row} is hidden or shown against its document's current version")
        for row in list(pyroaring.BitMap64(hidden.ids()) - for_documents):
            self._report.note(f"row {row} is hidden and belongs to no document")

    def counts_are_right(self) -> None:
        head, state = self._state.head, self._state
        self._compare("visible rows", len(state.visible), head.rows)
        self._compare("hidden rows", len(state.hidden), head.hidden)
        serials = [int(directory.fragments["serial"].max(initial=0)) for directory in state.directories.values()]
        if max(serials, default=0) >= head.next_serial or state.centroids.lists.max(initial=-1) >= head.next_list:
            self._report.note("the head would give out numbers that are in use")

    async def nothing_lies_unlisted(self) -> None:
        """Every fragment in the store is listed."""
        listed = {
            (shelf, int(fragment["low"]), int(fragment["serial"]))
            for shelf, directory in self._state.directories.items()
            for fragment in directory.fragments
        }
        async for entries in self._blocks.reader.scan_prefix(fragments_prefix(self._state.prefix)):
            for key, _ in entries:
                address = FORMAT.address(key)
                if tuple(address) not in listed:
                    self._report.note(f"{address} lies in the store and is not listed")

    async def _rows_once(self, shelf: Shelf) -> pyroaring.BitMap64:
        """The living rows of a shelf, each of which lies there once."""
        found = pyroaring.BitMap64()
        async for content in self._contents(shelf):
            ids = content.ids[self._living.contains(content.ids)]
            fresh = pyroaring.BitMap64(ids)
            if len(fresh) != len(ids) or found & fresh:
                self._report.note(f"a row lies twice in the {shelf}")
            found |= fresh
        return found

    async def _living_values(self, shelf: Shelf) -> AsyncIterator[ColumnBlock]:
        async for content in self._contents(shelf):
            assert isinstance(content, ColumnBlock)
            yield content.take(self._living.contains(content.ids))

    def _compare(self, what: str, counted: int, kept: int) -> None:
        if counted != kept:
            self._report.note(f"there are {counted} {what}, and the head says {kept}")

    async def _contents(self, shelf: Shelf) -> AsyncIterator[RowBlock]:
        """Buckets one by one, so that a check needs no more memory than a search."""
        for low in self._state.directory(shelf).lows.tolist():
            kind: type[RowBlock] = ROW_BLOCKS[Family(shelf.family)]
            for content in (await self._blocks.contents(self._state, shelf, [low], kind)).values():
                yield content


def _told(words: int) -> str:
    return f"{words} words" if words >= 0 else "no text"
