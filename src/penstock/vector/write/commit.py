"""A flush of one collection: operations in, a new state and the writes that make it so out.

New rows are appended everywhere: to their vectors, names, texts and columns, to the dictionary and the words,
and to the list whose centre is nearest; one without a vector is in no list, and only its words find it. Nothing that is
stored is rewritten but small fragments that fold, and columns whose values change (`updates`). Lists are kept in shape afterwards, by `upkeep`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from penstock.blocks import BlockReader, Operations, Shelf, file, stack
from penstock.vector.arrays import Bools, Bytes, Column, Floats, Ids, Indices, compute
from penstock.vector.attributes import attribute_type
from penstock.vector.config import VectorConfig
from penstock.vector.format.clusters import Centroids, NearestCentre, partition, pieces
from penstock.vector.format.codes import code_bytes, encode
from penstock.vector.format.content import ColumnBlock, IdBlock, PostingBlock, VectorBlock
from penstock.vector.format.document_log import DocumentBlock, DocumentMark
from penstock.vector.format.identity import identity_of_text
from penstock.vector.format.idset import BITMAP_IDS, IdSet
from penstock.vector.format.keys import Family
from penstock.vector.format.metric import DistanceMetric
from penstock.vector.format.state import LENGTHS, AttributeRecord, CollectionState, Head
from penstock.vector.format.terms import TermBlock, count_words
from penstock.vector.offload import offload
from penstock.vector.operations import Operation, Upsert
from penstock.vector.read.lookup import find_column
from penstock.vector.write.draft import CollectionDraft
from penstock.vector.write.ledger import Ledger
from penstock.vector.write.resolve import settle
from penstock.vector.write.updates import NewValues, new_values, overridden, update_columns

__all__ = ["commit"]

# Lists whose centroids share a block.
_CENTROIDS_PER_BLOCK: Final = 64
# Rows that are assigned to lists at a time: memory that is used again is not cleared again.
_ASSIGN_ROWS: Final = 4096


@dataclass(frozen=True, slots=True)
class _Arriving:
    """The rows of a flush that live, with their ids."""

    ids: Ids
    born: Bools
    upserts: tuple[Upsert, ...]

    def column(self, pick: Callable[[Upsert], Column | None]) -> ColumnBlock | None:
        """One column of them: rows that have a value, in the order of their ids."""
        ids, values, start = [], [], 0
        for upsert in self.upserts:
            end = start + len(upsert.rows)
            found = pick(upsert)
            if found is not None:
                there = self._there(found, start, end)
                ids.append(self.ids[start:end] if there is None else self.ids[start:end][there])
                values.append(found if there is None else found.filter(pa.array(there)))
            start = end
        if len(ids) == 1:
            return ColumnBlock(ids[0], values[0])
        return ColumnBlock(np.concatenate(ids), pa.concat_arrays(values)) if ids else None

    def _there(self, values: Column, start: int, end: int) -> Bools | None:
        """Which of some rows live and have a value; None if all do, which is usual and need not be picked out."""
        if not values.null_count and self.born[start:end].all():
            return None
        there: Bools = self.born[start:end] & values.is_valid().to_numpy(zero_copy_only=False)
        return there

    def vectors(self) -> VectorBlock:
        """Those of the rows that have one."""
        placed = np.concatenate([upsert.rows.placed_mask for upsert in self.upserts])
        matrix: Floats = np.concatenate([upsert.rows.vectors for upsert in self.upserts])
        alive = self.born[placed]
        return VectorBlock(self.ids[placed & self.born], matrix if alive.all() else matrix[alive])


async def commit(
    blocks: BlockReader, state: CollectionState, operations: Sequence[Operation], config: VectorConfig
) -> tuple[CollectionState, Operations]:
    """Apply operations to a collection."""
    ledger = await settle(blocks, state, operations)
    draft = CollectionDraft(state)
    upserts = tuple(operation for operation in operations if isinstance(operation, Upsert) and len(operation.rows))
    count = sum(len(upsert.rows) for upsert in upserts)
    ids = np.arange(state.head.next_id, state.head.next_id + count, dtype=np.int64)
    arriving = _Arriving(ids, ledger.born, upserts)
    head = msgspec.structs.replace(state.head, next_id=state.head.next_id + count)
    centroids = state.centroids
    updates = new_values(ledger)
    if updates:
        head = await update_columns(draft, blocks, updates, head)
    if arriving.born.any():
        head = _add_columns(draft, arriving, head, updates)
        head, centroids = await offload(count, config.threads, _add_vectors, draft, arriving, head, config)
    head = await _add_texts(draft, blocks, arriving, ledger, head)
    await file(draft, blocks, Shelf(Family.DICTIONARY), ledger.dictionary())
    if ledger.memberships or ledger.marks:
        await file(draft, blocks, Shelf(Family.DOCUMENTS), _document_log(ledger))
    head, hidden = _count_rows(ledger, head)
    put_ids(draft, Family.DELETED, ledger.dead, np.concatenate([ledger.killed, ids[~arriving.born]]))
    put_ids(
        draft,
        Family.HIDDEN,
        hidden,
        np.concatenate([hidden.minus(state.hidden, head.next_id), _unhidden(state, hidden)]),
    )
    await draft.fold(blocks)
    return await offload(count, config.threads, draft.state_after, head, centroids, ledger.dead, hidden)


def _add_columns(draft: CollectionDraft, arriving: _Arriving, head: Head, updates: Mapping[str, NewValues]) -> Head:
    names = arriving.column(lambda upsert: upsert.rows.names)
    assert names is not None
    stack(draft, Shelf(Family.NAMES), names, names.ids)
    records = {record.name: record for record in head.attributes}
    first, end = draft.base.head.next_id, head.next_id
    new = {name: mine for name, values in updates.items() if len(mine := values.between(first, end))}
    fresh = sorted({name for upsert in arriving.upserts for name in upsert.rows.attributes} | {*new})
    for name in fresh:
        column = arriving.column(lambda upsert, name=name: upsert.rows.attributes.get(name))  # type: ignore[misc]
        if name in new:
            column = overridden(column, new[name])
        if column is None or not len(column):
            continue
        kind = attribute_type(column.values.type)
        assert kind is not None
        record = records.setdefault(name, AttributeRecord(len(records) + 1, name, kind))
        stack(draft, Shelf(Family.COLUMN, record.number), column, column.ids)
    return msgspec.structs.replace(head, attributes=tuple(records.values()))


def _add_vectors(
    draft: CollectionDraft, arriving: _Arriving, head: Head, config: VectorConfig
) -> tuple[Head, Centroids]:
    state, rows = draft.base, arriving.vectors()
    centroids, next_list, shaped = state.centroids, head.next_list, head.shaped
    if not len(rows):
        return head, centroids
    ids, vectors = rows.ids, rows.vectors
    stack(draft, Shelf(Family.VECTORS), rows, ids)
    labels: Indices | None = None
    if not len(centroids):
        count = pieces(len(ids), config.list_rows, config.lists_max)
        centres, labels = partition(state.metric, state.metric.prepare(vectors), count)
        centroids = Centroids(np.arange(next_list, next_list + len(centres)), centres)
        next_list, shaped = next_list + len(centres), len(ids)
        put_centroids(draft, centroids, centroids.lists)
    labels, codes, norm_max = _assigned(state.metric, vectors, centroids, labels)
    append_postings(draft, centroids.lists[labels], PostingBlock(ids, codes))
    head = msgspec.structs.replace(head, norm_max=max(head.norm_max, norm_max), next_list=next_list, shaped=shaped)
    return head, centroids


def _assigned(
    metric: DistanceMetric, vectors: Floats, centroids: Centroids, known: Indices | None
) -> tuple[Indices, Bytes, float]:
    """The list and the code of each row, and the length of the longest; in parts that stay in the processor's reach."""
    labels = np.empty(len(vectors), np.int64) if known is None else known
    codes = np.empty((len(vectors), code_bytes(vectors.shape[1])), np.uint8)
    square_max, centre = 0.0, NearestCentre(centroids.vectors)
    for first in range(0, len(vectors), _ASSIGN_ROWS):
        part = slice(first, first + _ASSIGN_ROWS)
        prepared = metric.prepare(vectors[part])
        codes[part] = encode(prepared)
        if known is None:
            labels[part] = centre.of(prepared)
        square_max = max(square_max, float(np.einsum("nd,nd->n", prepared, prepared).max()))
    return labels, codes, square_max**0.5


async def _add_texts(
    draft: CollectionDraft, blocks: BlockReader, arriving: _Arriving, ledger: Ledger, head: Head
) -> Head:
    """Store texts and words, and keep count of those that a search can find."""
    state = draft.base
    left = ledger.killed[~state.hidden.contains(ledger.killed)]
    gone, shown = [await _lengths(blocks, state, ids) for ids in (left, ledger.revealed)]
    texts = head.texts - len(gone) + len(shown)
    words = head.words - int(gone.sum()) + int(shown.sum())
    column = arriving.column(lambda upsert: upsert.rows.texts)
    if column is not None and len(column):
        stack(draft, Shelf(Family.TEXTS), column, column.ids)
        vocabulary = await offload(len(column), 0, count_words, column.values, state.stored_analysis)
        stack(draft, LENGTHS, ColumnBlock(column.ids, pa.array(vocabulary.lengths)), column.ids)
        rows = TermBlock.of(vocabulary.hashes, column.ids[vocabulary.texts], vocabulary.counts)
        await file(draft, blocks, Shelf(Family.TERMS), rows)
        found = ~ledger.hidden.contains(column.ids)
        texts, words = texts + int(found.sum()), words + int(vocabulary.lengths[found].sum())
        if vocabulary.languages - state.languages:
            head = msgspec.structs.replace(head, languages=tuple(sorted(vocabulary.languages | state.languages)))
    return msgspec.structs.replace(head, texts=texts, words=words)


async def _lengths(blocks: BlockReader, state: CollectionState, ids: Ids) -> Any:
    """The numbers of words of those rows that have a text."""
    if not len(ids):
        return np.empty(0, np.int64)
    lengths = await find_column(blocks, state, LENGTHS, ids, pa.uint32())
    return compute.drop_null(lengths).to_numpy().astype(np.int64)


def _document_log(ledger: Ledger) -> DocumentBlock:
    entries: list[tuple[str, str, int, int]] = []
    for version, ids in ledger.memberships:
        living = ids[~ledger.dead.contains(ids)]
        entries += [(version.document, version.version, int(DocumentMark.ROW), row) for row in living.tolist()]
    entries += [(version.document, version.version, int(mark), -1) for version, mark in ledger.marks]
    keys = {entry[0]: identity_of_text(entry[0])[0] for entry in entries}
    columns = list(zip(*entries, strict=True)) or [(), (), (), ()]
    return DocumentBlock.of(
        np.array([keys[document] for document in columns[0]], np.uint64),
        columns[0],
        columns[1],
        np.array(columns[2], np.uint8),
        np.array(columns[3], np.int64),
    )


def _count_rows(ledger: Ledger, head: Head) -> tuple[Head, IdSet]:
    hidden = ledger.settled_hidden()
    hidden_rows = len(hidden)
    alive = head.next_id - len(ledger.dead)
    dead = head.dead + len(ledger.killed)
    replaced = (head.replaced or 0) + min(len(ledger.killed), int(ledger.born.sum()) + len(ledger.revealed))
    head = msgspec.structs.replace(head, rows=alive - hidden_rows, hidden=hidden_rows, dead=dead)
    return msgspec.structs.replace(head, replaced=replaced or msgspec.UNSET), hidden


def _unhidden(state: CollectionState, hidden: IdSet) -> Ids:
    return state.hidden.minus(hidden, state.head.next_id)


def append_postings(draft: CollectionDraft, lists: Ids, rows: PostingBlock) -> None:
    """Add rows to their lists."""
    if not len(rows):
        return
    if len(rows) == 1:
        draft.append(Shelf(Family.POSTINGS), int(lists[0]), rows)
        return
    order = np.argsort(lists, kind="stable")
    ordered, rows = lists[order], rows.take(order)
    bounds = np.flatnonzero(np.diff(ordered, prepend=-1))
    for first, end in zip(bounds, [*bounds[1:], len(ordered)], strict=True):
        content = PostingBlock(rows.ids[first:end], rows.codes[first:end])
        draft.append(Shelf(Family.POSTINGS), int(ordered[first]), content)


def put_centroids(draft: CollectionDraft, centroids: Centroids, changed: Ids) -> None:
    """Write the blocks of the centroids that changed."""
    for low in sorted({number // _CENTROIDS_PER_BLOCK * _CENTROIDS_PER_BLOCK for number in changed.tolist()}):
        inside = (centroids.lists >= low) & (centroids.lists < low + _CENTROIDS_PER_BLOCK)
        content = VectorBlock(centroids.lists[inside], centroids.vectors[inside])
        draft.replace(Shelf(Family.CENTROIDS), low, content)


def put_ids(draft: CollectionDraft, family: Family, members: IdSet, changed: Ids) -> None:
    """Write the blocks of a set whose members changed."""
    if not len(changed):
        return
    for low in np.unique(changed // BITMAP_IDS * BITMAP_IDS).tolist():
        draft.replace(Shelf(family), low, IdBlock(members.ids(low, low + BITMAP_IDS)))
