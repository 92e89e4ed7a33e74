"""A damaged collection made whole from what is left of it: one batch, after which `verify` finds nothing.

Rows are their names, and vectors or texts; everything else is made again from those and from the log of documents:
lists and centres, the dictionary, words and their counts, hidden rows, directories, the head's counts. A vector that is
lost is taken from its code, to about three digits; if that is lost too, the words of a row that has a text still find
it. What cannot be made again is lost, and told: rows without a name or with neither vector nor text, vectors, texts,
values of attributes, names of attributes if the head is gone, and which documents rows belong to.
Which rows live is decided first (`survivors`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from penstock.blocks import BlockReader, Directory, Operations, Shelf, page_operations, recut
from penstock.vector.arrays import Column, Floats, Ids
from penstock.vector.config import VectorConfig
from penstock.vector.format.clusters import Centroids, nearest, partition, pieces
from penstock.vector.format.codes import decode, encode
from penstock.vector.format.content import ColumnBlock, PostingBlock, VectorBlock
from penstock.vector.format.identity import DictionaryBlock
from penstock.vector.format.keys import CollectionName, Family
from penstock.vector.format.state import LENGTHS, CollectionRecord, CollectionState, Head
from penstock.vector.format.store_format import FORMAT
from penstock.vector.format.terms import TermBlock, count_words
from penstock.vector.upkeep.survey import Survey, broken_keys
from penstock.vector.upkeep.survivors import Survivors
from penstock.vector.write.commit import append_postings, put_centroids, put_ids
from penstock.vector.write.draft import CollectionDraft

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
    rows = Survivors(blocks, bare, survey)
    await rows.find(head, keep_doubtful=keep_doubtful)
    work = _Rebuild(blocks, bare, survey, config, rows)
    await work.write_vectors()
    await work.write_lists()
    await work.write_words()
    work.write_names()
    return work.finished()


class _Rebuild:
    """What is written again, for the rows that live."""

    def __init__(
        self, blocks: BlockReader, state: CollectionState, survey: Survey, config: VectorConfig, rows: Survivors
    ) -> None:
        self._blocks = blocks
        self._state = state
        self._survey = survey
        self._config = config
        self._draft = CollectionDraft(state)
        self._rebuilt = Rebuilt(losses=rows.losses)
        self._limit = state.head.next_id
        self._rows = rows
        self._centroids = state.centroids
        self._head = state.head
        self._longest = state.head.norm_max

    async def write_vectors(self) -> None:
        """Vectors that are lost, from their codes."""
        there = np.zeros(self._limit, np.bool_)
        async for content in self._rows.contents(_VECTORS):
            assert isinstance(content, VectorBlock)
            there[content.ids] = True
            self._measure(content.vectors)
        missing = self._rows.ids[(self._rows.placed & ~there)[self._rows.ids]]
        if not len(missing):
            return
        found = VectorBlock(missing, np.zeros((len(missing), self._state.dimensions), np.float32))
        async for content in self._rows.contents(_POSTINGS):
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
        known = {*self._state.directory(shelf).lows.tolist(), *self._survey.lost_lows(Family(shelf.family))}
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
        async for content in self._rows.contents(_CENTROIDS):
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
        await self._file_unlisted(self._rows.ids[(self._rows.placed & ~listed)[self._rows.ids]])
        for low in self._state.directory(_CENTROIDS).lows.tolist():
            self._draft.replace(_CENTROIDS, low, None)
        put_centroids(self._draft, self._centroids, self._centroids.lists)

    async def _file_unlisted(self, ids: Ids) -> None:
        """Put rows into the lists that they are nearest to; without any list, into new ones."""
        if not len(ids):
            return
        # Rows that are in no list have a vector, since there is no code to make one of.
        parts = [VectorBlock(np.empty(0, np.int64), np.empty((0, self._state.dimensions), np.float32))]
        async for content in self._rows.contents(_VECTORS):
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
            content = content.take(~self._rows.dead.contains(content.ids))
            counted = count_words(content.values, self._state.stored_analysis)
            languages |= counted.languages
            terms.append(TermBlock.of(counted.hashes, content.ids[counted.texts], counted.counts))
            self._draft.replace(LENGTHS, low, ColumnBlock(content.ids, pa.array(counted.lengths)))
            seen = ~self._rows.hidden.contains(content.ids)
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
        if len(self._rows.ids):
            identities = self._rows.identities_of_rows(self._rows.ids, self._rows.names)
            recut(self._draft, _DICTIONARY, 0, DictionaryBlock.of(identities, self._rows.ids))
        for family, members in ((Family.DELETED, self._rows.dead), (Family.HIDDEN, self._rows.hidden)):
            put_ids(self._draft, family, members, members.ids())

    def finished(self) -> Rebuilt:
        living = self._limit - len(self._rows.dead)
        hidden = len(self._rows.hidden)
        head = msgspec.structs.replace(
            self._head,
            rows=living - hidden,
            hidden=hidden,
            dead=int((self._rows.dead.mask() & self._rows.stored).sum()),
            norm_max=self._longest,
        )
        if not head.shaped:
            head = msgspec.structs.replace(head, shaped=living)
        whole, operations = self._draft.state_after(head, self._centroids, self._rows.dead, self._rows.hidden)
        prefix = self._state.prefix
        self._rebuilt.operations += [(key, None) for key in (*broken_keys(self._survey, prefix), *self._survey.pages)]
        self._rebuilt.operations += operations
        for shelf, directory in whole.directories.items():
            listed = Directory(directory.fragments, np.zeros(1, np.uint64))
            pages = listed.paged(np.zeros(1, np.uint64))[1]
            self._rebuilt.operations += page_operations(FORMAT, prefix, shelf, pages)
        self._rebuilt.rows = living
        return self._rebuilt


def _centroids(centres: dict[int, Column], dimensions: int) -> Centroids:
    if not centres:
        return Centroids.none(dimensions)
    lists = np.array(sorted(centres), np.int64)
    return Centroids(lists, np.stack([centres[number] for number in lists.tolist()]).astype(np.float32))
