"""A damaged collection made whole from what is left of it: one batch, after which `verify` finds nothing.

Rows are their names, and vectors or texts; everything else is made again from those and from the log of documents:
lists and centres, the dictionary, words and their counts, hidden rows, directories, the head's counts. A vector that is
lost is taken from its code, to about three digits; if that is lost too, the words of a row that has a text still find
it. What cannot be made again is lost, and told: rows without a name or with neither vector nor text, vectors, texts,
values of attributes, names of attributes if the head is gone, and which documents rows belong to.

Which rows were deleted is stored once. Without that, a row whose name leads to no newer one may live or may have been
deleted: as many as the head counts must live, and if there are more, somebody has to decide whether to keep them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from penstock.errors import Corrupt
from penstock.vector.agreement import shown_by_documents
from penstock.vector.arrays import Bools, Column, Floats, Ids
from penstock.vector.blocks import CONTENT, BlockReader
from penstock.vector.clusters import Centroids, nearest, partition, pieces
from penstock.vector.codes import decode, encode
from penstock.vector.commit import append_postings, put_centroids, put_ids
from penstock.vector.config import VectorConfig
from penstock.vector.content import ColumnBlock, Content, IdBlock, PostingBlock, VectorBlock
from penstock.vector.directory import Directory, encode_page
from penstock.vector.documents import DocumentBlock, Mark
from penstock.vector.draft import Draft, Operations
from penstock.vector.identity import DictionaryBlock, Identities, identities_of, identities_of_versions
from penstock.vector.idset import IdSet
from penstock.vector.keys import CollectionName, Family, Shelf, page_key
from penstock.vector.layout import recut
from penstock.vector.state import LENGTHS, CollectionRecord, CollectionState, Head
from penstock.vector.survey import Survey, broken_keys
from penstock.vector.terms import TermBlock, count_words

__all__ = ["Rebuilt", "rebuild"]

_VECTORS: Final = Shelf(Family.VECTORS)
_NAMES: Final = Shelf(Family.NAMES)
_TEXTS: Final = Shelf(Family.TEXTS)
_DICTIONARY: Final = Shelf(Family.DICTIONARY)
_POSTINGS: Final = Shelf(Family.POSTINGS)
_TERMS: Final = Shelf(Family.TERMS)
_DOCUMENTS: Final = Shelf(Family.DOCUMENTS)
_CENTROIDS: Final = Shelf(Family.CENTROIDS)


@dataclass(slots=True)
class Rebuilt:
    """The operations that make a collection whole, and what they could not bring back."""

    operations: Operations = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    rows: int = 0


async def rebuild(
    blocks: BlockReader,
    name: CollectionName,
    record: CollectionRecord,
    head: Head | None,
    survey: Survey,
    config: VectorConfig,
    *,
    keep_doubtful: bool,
) -> Rebuilt:
    """How to make a collection whole; `Corrupt` if somebody has to decide first whether to keep rows in doubt."""
    bare = CollectionState(name, record, survey.head(head), survey.directories(), Centroids.none(record.dimensions))
    work = _Rebuild(blocks, bare, survey, config)
    await work.find_rows(head, keep_doubtful=keep_doubtful)
    await work.write_vectors()
    await work.write_lists()
    await work.write_words()
    work.write_names()
    return work.finished()


class _Rebuild:
    def __init__(self, blocks: BlockReader, state: CollectionState, survey: Survey, config: VectorConfig) -> None:
        self._blocks = blocks
        self._state = state
        self._survey = survey
        self._config = config
        self._draft = Draft(state)
        self._rebuilt = Rebuilt()
        self._limit = state.head.next_id
        self._dead = IdSet(self._limit)
        self._hidden = IdSet(self._limit)
        self._centroids = state.centroids
        self._head = state.head
        # Rows that lie in blocks, and the length of the longest vector.
        self._stored: Bools = np.zeros(self._limit, np.bool_)
        self._longest = state.head.norm_max
        # Rows that have a vector, or a code to make one of.
        self._placed: Bools = np.zeros(self._limit, np.bool_)
        # Names of rows that may live, in the order of their ids, and the version each row was written for.
        self._ids: Ids = np.empty(0, np.int64)
        self._names: Column = pa.array([], pa.string())
        self._versions: dict[int, tuple[str, str]] = {}

    # which rows there are -------------------------------------------------------------------------

    async def find_rows(self, head: Head | None, *, keep_doubtful: bool) -> None:
        """Decide which rows live, and which of them are hidden."""
        damaged = self._survey.damaged
        self._dead, self._hidden = [await self._members(family) for family in (Family.DELETED, Family.HIDDEN)]
        named, told = await self._named(), await self._holding(_TEXTS)
        self._placed = await self._holding(_VECTORS, _POSTINGS)
        documented, shown = await self._documented()
        self._stored = named | self._placed
        whole = named & (self._placed | told)
        living = whole & ~self._dead.mask()
        if Family.HIDDEN in damaged or Family.DOCUMENTS in damaged:
            hidden = documented & ~shown if Family.HIDDEN in damaged else self._hidden.mask() & documented
            if orphans := int((living & self._hidden.mask() & ~documented).sum()):
                self._rebuilt.losses.append(f"{orphans:,} rows of versions that were not current yet")
                living &= ~(self._hidden.mask() & ~documented)
            self._hidden = IdSet.of_mask(hidden)
        if Family.DOCUMENTS in damaged:
            self._rebuilt.losses.append("which rows belong to some documents: index those documents again")
        living &= self._newest(living, documented, shown)
        self._settle_doubt(head, living, keep_doubtful=keep_doubtful)
        gone = int((~self._dead.mask() & ~whole).sum())
        if gone and damaged & {Family.NAMES, Family.VECTORS, Family.POSTINGS, Family.TEXTS}:
            count = f"up to {gone:,}" if Family.DELETED in damaged else f"{gone:,}"
            self._rebuilt.losses.append(f"{count} rows whose ids, or vectors and texts, are gone")
        self._tell_unplaced(living)
        self._dead = IdSet.of_mask(~living)
        self._hidden = IdSet.of_mask(self._hidden.mask() & living)
        kept = living[self._ids]
        self._ids, self._names = self._ids[kept], self._names.filter(pa.array(kept))

    async def _members(self, family: Family) -> IdSet:
        found = IdSet(self._limit)
        async for content in self._contents(Shelf(family)):
            assert isinstance(content, IdBlock)
            found.add(content.ids[content.ids < self._limit])
        return found

    async def _named(self) -> Bools:
        ids, names = [np.empty(0, np.int64)], [pa.array([], pa.string())]
        async for content in self._contents(_NAMES):
            assert isinstance(content, ColumnBlock)
            ids.append(content.ids)
            names.append(content.values)
        self._ids, self._names = np.concatenate(ids), pa.concat_arrays(names)
        return self._mask(self._ids)

    def _tell_unplaced(self, living: Bools) -> None:
        """Say how many rows may have lost their vector. Not without both: either tells which rows had none."""
        if not {Family.VECTORS, Family.POSTINGS} <= self._survey.damaged:
            return
        lost = self._survey.lost_lows(Family.VECTORS)
        lows = np.array(sorted({-1, *self._state.directory(_VECTORS).lows.tolist(), *lost}), np.int64)
        unplaced = np.flatnonzero(living & ~self._placed)
        buckets = lows[np.searchsorted(lows, unplaced, side="right") - 1]
        if count := int(np.isin(buckets, lost).sum()):
            self._rebuilt.losses.append(f"the vectors of up to {count:,} rows: only their words find those")

    async def _holding(self, *shelves: Shelf) -> Bools:
        """Rows that lie in one of some shelves."""
        found = np.zeros(self._limit, np.bool_)
        for shelf in shelves:
            async for content in self._contents(shelf):
                found[content.ids] = True
        return found

    async def _documented(self) -> tuple[Bools, Bools]:
        """Rows that belong to a version of a document, and those of them whose version is current."""
        documented, shown = np.zeros(self._limit, np.bool_), np.zeros(self._limit, np.bool_)
        async for block in self._contents(_DOCUMENTS):
            assert isinstance(block, DocumentBlock)
            ids, current = shown_by_documents(block)
            there = ids < self._limit
            documented[ids[there]], shown[ids[there]] = True, current[there]
            rows = block.entries.filter(pa.array(block.entries["mark"].to_numpy() == Mark.ROW))
            columns = [rows[column].to_pylist() for column in ("id", "document", "version")]
            self._versions.update({row: (document, version) for row, document, version in zip(*columns, strict=True)})
        return documented, shown

    def _newest(self, living: Bools, documented: Bools, shown: Bools) -> Bools:
        """Of the rows that one identity has had, the newest: the others were replaced."""
        kept = living[self._ids]
        ids, identities = self._ids[kept], self._identities(self._ids[kept], self._names.filter(pa.array(kept)))
        newest = DictionaryBlock.of(identities, ids).ids
        if Family.DELETED not in self._survey.damaged:
            # Known to live: an identity that two rows share would only be another damage.
            return self._mask(newest)
        # Rows of versions that are neither current nor waiting were dropped with them.
        return self._mask(newest) & (~documented | shown | self._hidden.mask())

    def _settle_doubt(self, head: Head | None, living: Bools, *, keep_doubtful: bool) -> None:
        if Family.DELETED not in self._survey.damaged:
            return
        visible = int((living & ~self._hidden.mask()).sum())
        if head is not None and visible <= head.rows:
            return
        counted = "is not known" if head is None else f"is {head.rows:,}"
        doubt = f"{visible:,} rows may live, and how many do {counted}: which were deleted is lost"
        if not keep_doubtful:
            raise Corrupt(
                doubt, f"rows of {self._state.name} that were deleted would be back", "decide: --keep-doubtful"
            )
        self._rebuilt.losses.append(f"which rows were deleted: some of the {visible:,} may be back")

    # what is written again ------------------------------------------------------------------------

    async def write_vectors(self) -> None:
        """Vectors that are lost, from their codes."""
        there = np.zeros(self._limit, np.bool_)
        async for content in self._contents(_VECTORS):
            assert isinstance(content, VectorBlock)
            there[content.ids] = True
            self._measure(content.vectors)
        missing = self._ids[(self._placed & ~there)[self._ids]]
        if not len(missing):
            return
        found = VectorBlock(missing, np.zeros((len(missing), self._state.dimensions), np.float32))
        async for content in self._contents(_POSTINGS):
            assert isinstance(content, PostingBlock)
            mine = np.isin(content.ids, missing)
            found.vectors[np.searchsorted(missing, content.ids[mine])] = decode(content.codes[mine])
        self._rebuilt.losses.append(f"the exact vectors of {len(missing):,} rows: about three digits of them are left")
        self._measure(found.vectors)
        await self._insert(_VECTORS, found)

    def _measure(self, vectors: Floats) -> None:
        lengths = np.linalg.norm(self._state.metric.prepare(vectors), axis=1)
        self._longest = max(self._longest, float(lengths.max(initial=0.0)))

    async def _insert(self, shelf: Shelf, content: VectorBlock) -> None:
        """Put rows into the buckets whose range they are in, in the order of their ids."""
        known = {*self._state.directory(shelf).lows.tolist(), *self._survey.lost_lows(shelf.family)}
        first = int(content.ids[0])
        # A new bucket only before all others: one among them would take rows from the range of another.
        lows = np.array(sorted(known if known and min(known) <= first else {*known, first}), np.uint64)
        places = np.searchsorted(lows, content.ids.astype(np.uint64), side="right") - 1
        for place in np.unique(places).tolist():
            low, mine = int(lows[place]), content.take(places == place)
            stored = await self._blocks.contents(self._state, shelf, [low], VectorBlock)
            merged = VectorBlock.merge([*stored.values(), mine])
            self._draft.replace(shelf, low, merged.take(np.argsort(merged.ids)))

    async def write_lists(self) -> None:
        """Centres of lists that have none, and rows that are in no list."""
        stored: dict[int, Column] = {}
        async for content in self._contents(_CENTROIDS):
            assert isinstance(content, VectorBlock)
            stored.update(zip(content.ids.tolist(), content.vectors, strict=True))
        listed = np.zeros(self._limit, np.bool_)
        for number in self._state.directory(_POSTINGS).lows.tolist():
            content = (await self._blocks.contents(self._state, _POSTINGS, [number], PostingBlock))[number]
            listed[content.ids] = True
            if number not in stored:
                mean = decode(content.codes).mean(axis=0, keepdims=True, dtype=np.float32)
                stored[number] = self._state.metric.prepare(mean)[0]
        self._centroids = _centroids(stored, self._state.dimensions)
        await self._file_unlisted(self._ids[(self._placed & ~listed)[self._ids]])
        for low in self._state.directory(_CENTROIDS).lows.tolist():
            self._draft.replace(_CENTROIDS, low, None)
        put_centroids(self._draft, self._centroids, self._centroids.lists)

    async def _file_unlisted(self, ids: Ids) -> None:
        """Put rows into the lists that they are nearest to; without any list, into new ones."""
        if not len(ids):
            return
        # Rows that are in no list have a vector, since there is no code to make one of.
        parts = [VectorBlock(np.empty(0, np.int64), np.empty((0, self._state.dimensions), np.float32))]
        async for content in self._contents(_VECTORS):
            assert isinstance(content, VectorBlock)
            parts.append(content.take(np.isin(content.ids, ids)))
        rows = VectorBlock.merge(parts)
        prepared = self._state.metric.prepare(rows.vectors)
        if not len(self._centroids):
            count = pieces(len(rows), self._config.list_rows, self._config.lists_max)
            centres, _ = partition(self._state.metric, prepared, count)
            first = self._head.next_list
            self._centroids = Centroids(np.arange(first, first + len(centres)), centres)
            self._head = msgspec.structs.replace(self._head, next_list=first + len(centres))
        lists = self._centroids.lists[nearest(prepared, self._centroids.vectors)]
        append_postings(self._draft, lists, PostingBlock(rows.ids, encode(prepared)))

    async def write_words(self) -> None:
        """Lengths of texts, the words that find them, and their counts."""
        if Family.TEXTS in self._survey.damaged:
            self._rebuilt.losses.append("some texts: their rows are left without")
        columns = {address.shelf.column for address in self._survey.broken if address.shelf.family is Family.COLUMN}
        for number in sorted(columns - {LENGTHS.column}):
            record = next((each.name for each in self._head.attributes if each.number == number), str(number))
            self._rebuilt.losses.append(f"some values of attribute {record!r}")
        for shelf in (LENGTHS, _TERMS):
            for low in self._state.directory(shelf).lows.tolist():
                self._draft.replace(shelf, low, None)
        terms, texts, words, languages = [], 0, 0, frozenset[int]()
        for low in self._state.directory(_TEXTS).lows.tolist():
            content = (await self._blocks.contents(self._state, _TEXTS, [low], ColumnBlock))[low]
            content = content.take(~self._dead.contains(content.ids))
            counted = count_words(content.values, self._state.analysis)
            languages |= counted.languages
            terms.append(TermBlock.of(counted.hashes, content.ids[counted.texts], counted.counts))
            self._draft.replace(LENGTHS, low, ColumnBlock(content.ids, pa.array(counted.lengths)))
            seen = ~self._hidden.contains(content.ids)
            texts, words = texts + int(seen.sum()), words + int(counted.lengths[seen].sum())
        if terms and len(merged := TermBlock.merge(terms)):
            recut(self._draft, _TERMS, 0, merged)
        spoken = tuple(sorted(languages)) or msgspec.UNSET
        self._head = msgspec.structs.replace(self._head, texts=texts, words=words, languages=spoken)

    def write_names(self) -> None:
        """The dictionary, and the sets of dead and hidden rows."""
        for shelf in (_DICTIONARY, Shelf(Family.DELETED), Shelf(Family.HIDDEN)):
            for low in self._state.directory(shelf).lows.tolist():
                self._draft.replace(shelf, low, None)
        if len(self._ids):
            identities = self._identities(self._ids, self._names)
            recut(self._draft, _DICTIONARY, 0, DictionaryBlock.of(identities, self._ids))
        for family, members in ((Family.DELETED, self._dead), (Family.HIDDEN, self._hidden)):
            put_ids(self._draft, family, members, members.ids())

    def finished(self) -> Rebuilt:
        living = self._limit - len(self._dead)
        hidden = len(self._hidden)
        head = msgspec.structs.replace(
            self._head,
            rows=living - hidden,
            hidden=hidden,
            dead=int((self._dead.mask() & self._stored).sum()),
            norm_max=self._longest,
        )
        if not head.shaped:
            head = msgspec.structs.replace(head, shaped=living)
        whole, operations = self._draft.finish(head, self._centroids, self._dead, self._hidden)
        number = self._state.number
        self._rebuilt.operations += [(key, None) for key in (*broken_keys(self._survey, number), *self._survey.pages)]
        self._rebuilt.operations += operations
        for shelf, directory in whole.directories.items():
            listed = Directory(directory.fragments, np.zeros(1, np.uint64))
            for page in listed.paged(np.zeros(1, np.uint64))[1]:
                value = encode_page(page.fragments) if len(page.fragments) else None
                self._rebuilt.operations.append((page_key(number, shelf, page.low), value))
        self._rebuilt.rows = living
        return self._rebuilt

    # reading --------------------------------------------------------------------------------------

    def _identities(self, ids: Ids, names: Column) -> Identities:
        """What rows are known by: their names, or while they are hidden their versions too."""
        identities = identities_of(names)
        versioned = np.flatnonzero(self._hidden.contains(ids))
        if len(versioned):
            versions = [(*self._versions[row], 1) for row in ids[versioned].tolist()]
            found = identities_of_versions(names.take(pa.array(versioned)), versions)
            high, low = identities.high.copy(), identities.low.copy()
            high[versioned], low[versioned] = found.high, found.low
            identities = Identities(high, low)
        return identities

    def _mask(self, ids: Ids) -> Bools:
        mask = np.zeros(self._limit, np.bool_)
        mask[ids] = True
        return mask

    async def _contents(self, shelf: Shelf) -> AsyncIterator[Content]:
        kind: type[Content] = CONTENT[shelf.family]
        for low in self._state.directory(shelf).lows.tolist():
            for content in (await self._blocks.contents(self._state, shelf, [low], kind)).values():
                yield content


def _centroids(centres: dict[int, Column], dimensions: int) -> Centroids:
    if not centres:
        return Centroids.none(dimensions)
    lists = np.array(sorted(centres), np.int64)
    return Centroids(lists, np.stack([centres[number] for number in lists.tolist()]).astype(np.float32))
