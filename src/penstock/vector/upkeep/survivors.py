"""Which rows of a damaged collection live, and which of them are hidden: decided from whatever can still be read.

Which rows were deleted is stored once. Without that, a row whose name leads to no newer one may live or may have been
deleted: as many as the head counts must live, and if there are more, somebody has to decide whether to keep them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.blocks import BlockReader, Shelf
from penstock.errors import Corrupt
from penstock.vector.arrays import Bools, Column, Ids
from penstock.vector.format.content import ColumnBlock, IdBlock, RowBlock
from penstock.vector.format.document_log import DocumentBlock, DocumentMark
from penstock.vector.format.identity import DictionaryBlock, Identities, identities_of, identities_of_versions
from penstock.vector.format.idset import IdSet
from penstock.vector.format.keys import Family
from penstock.vector.format.state import CollectionState, Head
from penstock.vector.format.store_format import ROW_BLOCKS
from penstock.vector.upkeep.agreement import shown_by_documents
from penstock.vector.upkeep.survey import Survey

__all__ = ["Survivors"]

_VECTORS: Final = Shelf(Family.VECTORS)
_NAMES: Final = Shelf(Family.NAMES)
_TEXTS: Final = Shelf(Family.TEXTS)
_POSTINGS: Final = Shelf(Family.POSTINGS)
_DOCUMENTS: Final = Shelf(Family.DOCUMENTS)


class Survivors:
    """The rows of one damaged collection. Known once `find` has returned."""

    def __init__(self, blocks: BlockReader, state: CollectionState, survey: Survey) -> None:
        self._blocks = blocks
        self._state = state
        self._survey = survey
        self._limit = state.head.next_id
        # What is lost for good, in words.
        self.losses: list[str] = []
        self.dead = IdSet(self._limit)
        self.hidden = IdSet(self._limit)
        # Rows that lie in blocks, and those of them that have a vector, or a code to make one of.
        self.stored: Bools = np.zeros(self._limit, np.bool_)
        self.placed: Bools = np.zeros(self._limit, np.bool_)
        # Rows that live in the order of their ids, their names, and the version that each row was written for.
        self.ids: Ids = np.empty(0, np.int64)
        self.names: Column = pa.array([], pa.string())
        self.versions: dict[int, tuple[str, str]] = {}

    async def find(self, head: Head | None, *, keep_doubtful: bool) -> None:
        """Decide which rows live, and which of them are hidden."""
        damaged = self._survey.damaged
        self.dead, self.hidden = [await self._members(family) for family in (Family.DELETED, Family.HIDDEN)]
        named, told = await self._named(), await self._holding(_TEXTS)
        self.placed = await self._holding(_VECTORS, _POSTINGS)
        documented, shown = await self._documented()
        self.stored = named | self.placed
        whole = named & (self.placed | told)
        living = whole & ~self.dead.mask()
        if Family.HIDDEN in damaged or Family.DOCUMENTS in damaged:
            hidden = documented & ~shown if Family.HIDDEN in damaged else self.hidden.mask() & documented
            if orphans := int((living & self.hidden.mask() & ~documented).sum()):
                self.losses.append(f"{orphans:,} rows of versions that were not current yet")
                living &= ~(self.hidden.mask() & ~documented)
            self.hidden = IdSet.of_mask(hidden)
        if Family.DOCUMENTS in damaged:
            self.losses.append("which rows belong to some documents: index those documents again")
        living &= self._newest(living, documented, shown)
        self._settle_doubt(head, living, keep_doubtful=keep_doubtful)
        gone = int((~self.dead.mask() & ~whole).sum())
        if gone and damaged & {Family.NAMES, Family.VECTORS, Family.POSTINGS, Family.TEXTS}:
            count = f"up to {gone:,}" if Family.DELETED in damaged else f"{gone:,}"
            self.losses.append(f"{count} rows whose ids, or vectors and texts, are gone")
        self._tell_unplaced(living)
        self.dead = IdSet.of_mask(~living)
        self.hidden = IdSet.of_mask(self.hidden.mask() & living)
        kept = living[self.ids]
        self.ids, self.names = self.ids[kept], self.names.filter(pa.array(kept))

    async def _members(self, family: Family) -> IdSet:
        found = IdSet(self._limit)
        async for content in self.contents(Shelf(family)):
            assert isinstance(content, IdBlock)
            found.add(content.ids[content.ids < self._limit])
        return found

    async def _named(self) -> Bools:
        ids, names = [np.empty(0, np.int64)], [pa.array([], pa.string())]
        async for content in self.contents(_NAMES):
            assert isinstance(content, ColumnBlock)
            ids.append(content.ids)
            names.append(content.values)
        self.ids, self.names = np.concatenate(ids), pa.concat_arrays(names)
        return self._mask(self.ids)

    def _tell_unplaced(self, living: Bools) -> None:
        """Say how many rows may have lost their vector. Not without both: either tells which rows had none."""
        if not {Family.VECTORS, Family.POSTINGS} <= self._survey.damaged:
            return
        lost = self._survey.lost_lows(Family.VECTORS)
        lows = np.array(sorted({-1, *self._state.directory(_VECTORS).lows.tolist(), *lost}), np.int64)
        unplaced = np.flatnonzero(living & ~self.placed)
        buckets = lows[np.searchsorted(lows, unplaced, side="right") - 1]
        if count := int(np.isin(buckets, lost).sum()):
            self.losses.append(f"the vectors of up to {count:,} rows: only their words find those")

    async def _holding(self, *shelves: Shelf) -> Bools:
        """Rows that lie in one of some shelves."""
        found = np.zeros(self._limit, np.bool_)
        for shelf in shelves:
            async for content in self.contents(shelf):
                found[content.ids] = True
        return found

    async def _documented(self) -> tuple[Bools, Bools]:
        """Rows that belong to a version of a document, and those of them whose version is current."""
        documented, shown = np.zeros(self._limit, np.bool_), np.zeros(self._limit, np.bool_)
        async for block in self.contents(_DOCUMENTS):
            assert isinstance(block, DocumentBlock)
            ids, current = shown_by_documents(block)
            there = ids < self._limit
            documented[ids[there]], shown[ids[there]] = True, current[there]
            rows = block.entries.filter(pa.array(block.entries["mark"].to_numpy() == DocumentMark.ROW))
            columns = [rows[column].to_pylist() for column in ("id", "document", "version")]
            self.versions.update({row: (document, version) for row, document, version in zip(*columns, strict=True)})
        return documented, shown

    def _newest(self, living: Bools, documented: Bools, shown: Bools) -> Bools:
        """Of the rows that one identity has had, the newest: the others were replaced."""
        kept = living[self.ids]
        ids, identities = self.ids[kept], self.identities_of_rows(self.ids[kept], self.names.filter(pa.array(kept)))
        newest = DictionaryBlock.of(identities, ids).ids
        if Family.DELETED not in self._survey.damaged:
            # Known to live: an identity that two rows share would only be another damage.
            return self._mask(newest)
        # Rows of versions that are neither current nor waiting were dropped with them.
        return self._mask(newest) & (~documented | shown | self.hidden.mask())

    def _settle_doubt(self, head: Head | None, living: Bools, *, keep_doubtful: bool) -> None:
        if Family.DELETED not in self._survey.damaged:
            return
        visible = int((living & ~self.hidden.mask()).sum())
        if head is not None and visible <= head.rows:
            return
        counted = "is not known" if head is None else f"is {head.rows:,}"
        doubt = f"{visible:,} rows may live, and how many do {counted}: which were deleted is lost"
        if not keep_doubtful:
            raise Corrupt(
                doubt, f"rows of {self._state.name} that were deleted would be back", "decide: --keep-doubtful"
            )
        self.losses.append(f"which rows were deleted: some of the {visible:,} may be back")

    def identities_of_rows(self, ids: Ids, names: Column) -> Identities:
        """What rows are known by: their names, or while they are hidden their versions too."""
        identities = identities_of(names)
        versioned = np.flatnonzero(self.hidden.contains(ids))
        if len(versioned):
            versions = [(*self.versions[row], 1) for row in ids[versioned].tolist()]
            found = identities_of_versions(names.take(pa.array(versioned)), versions)
            high, low = identities.high.copy(), identities.low.copy()
            high[versioned], low[versioned] = found.high, found.low
            identities = Identities(high, low)
        return identities

    def _mask(self, ids: Ids) -> Bools:
        mask = np.zeros(self._limit, np.bool_)
        mask[ids] = True
        return mask

    async def contents(self, shelf: Shelf) -> AsyncIterator[RowBlock]:
        kind: type[RowBlock] = ROW_BLOCKS[Family(shelf.family)]
        for low in self._state.directory(shelf).lows.tolist():
            for content in (await self._blocks.contents(self._state, shelf, [low], kind)).values():
                yield content
