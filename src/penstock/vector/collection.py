"""A collection as callers use it: rows in and out by external id, searches, and versions of documents.

Reads answer from one snapshot. Writes are accepted in order and reach the store whole; the handle that a write
returns tells when it is visible and when it is durable.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from penstock.blocks import BlockReader, StateMoved, check_name
from penstock.errors import InvalidInput
from penstock.vector.arrays import compute
from penstock.vector.attributes import AttributeType, Scalar, describe
from penstock.vector.bounds import whole_number
from penstock.vector.filter import Filter, attribute
from penstock.vector.format.document_log import DocumentMark
from penstock.vector.format.identity import ABSENT, identities_of, identities_of_versions
from penstock.vector.format.keys import ROW_FAMILIES, CollectionName, Family
from penstock.vector.format.state import CollectionState
from penstock.vector.operations import (
    Change,
    CollectionSpec,
    Delete,
    Discard,
    Flip,
    Operation,
    Remove,
    Update,
    UpdateDocument,
    Upsert,
    Version,
)
from penstock.vector.read.facets import FacetCounts, chosen_rows, count_values
from penstock.vector.read.lookup import document_blocks, find_rows
from penstock.vector.read.row_columns import COLUMNS, check_columns, read_columns
from penstock.vector.read.scan_pages import PAGE_ROWS, ListRequest, id_pages, list_rows
from penstock.vector.read.stats import CollectionStats, stats_of
from penstock.vector.rows import Rows, check_ids, prepared_queries, read_rows, read_updates, shared_values, text_array
from penstock.vector.search.fusion import BY_RANK, Fusion
from penstock.vector.search.search import ALL_LISTS, ROWS_MAX, Searcher, SearchRequest
from penstock.vector.upkeep.verify import VerifyReport, verify_collection

if TYPE_CHECKING:
    from penstock.coordinator import WriteHandle

__all__ = ["Changes", "Collection", "CollectionReader"]

T = TypeVar("T")
Work = Callable[[BlockReader, CollectionState], Awaitable[T]]
Moment: TypeAlias = tuple[BlockReader, CollectionState]

# How often a follower's listing begins again because the store moved on before its first page was read.
_ATTEMPTS_MAX: Final = 8
# Rows in one write of a removal by filter.
_DELETED_AT_ONCE: Final = 10_000


class Views(Protocol):
    """Where a collection reads from."""

    searcher: Searcher

    async def read(self, spec: CollectionSpec, work: Work[T]) -> T:
        """Do `work` on one moment of a collection."""
        ...

    def held(self, spec: CollectionSpec) -> AbstractAsyncContextManager[Moment]:
        """One moment of a collection, for as long as it is needed."""
        ...


class Writes(Protocol):
    """Where a collection writes to."""

    async def write(self, change: Change, *, timeout: float | None = None, durable: bool = False) -> WriteHandle: ...

    def known_attributes(self, spec: CollectionSpec) -> Mapping[str, AttributeType]:
        """The attributes of a collection, those of accepted writes included."""
        ...


class CollectionReader:
    """Reads of one collection."""

    def __init__(self, views: Views, spec: CollectionSpec) -> None:
        self._views = views
        self.spec = spec

    @property
    def name(self) -> CollectionName:
        return self.spec.name

    async def search(
        self,
        vectors: object = None,
        k: int = 10,
        *,
        filter: Filter | None = None,
        text: str | Sequence[str] | None = None,
        probes: int | None = None,
        recall_target: float | None = None,
        fusion: Fusion | None = None,
        columns: Sequence[str] = (),
        rerank: bool = True,
        group: str | None = None,
    ) -> pa.Table:
        """The best `k` rows of each query: by vector, by text, or by both joined.

        `group` names the attribute that rows of one document share: they support each other.
        """
        queries = None
        if vectors is not None:
            queries = prepared_queries(vectors, self.spec.dimensions, self.spec.metric)
        texts = None
        if text is not None:
            texts = text_array("text", [text] if isinstance(text, str) else text)
            if texts.null_count:
                raise InvalidInput("a search text is None", "each query has one", "use an empty text")
        count = whole_number("k", k, 1, ROWS_MAX, f"a query may ask for 1 to {ROWS_MAX} rows")
        if probes is not None:
            probes = whole_number("probes", probes, 1, ALL_LISTS, "at least one list must be probed")
        request = SearchRequest(
            count,
            queries,
            texts,
            filter,
            probes,
            recall_target,
            fusion or BY_RANK,
            check_columns(columns),
            rerank=rerank,
            group=group,
        )
        return await self._views.read(
            self.spec, lambda blocks, state: self._views.searcher.search(blocks, state, request)
        )

    async def get(self, ids: Iterable[str], columns: Sequence[str] = COLUMNS) -> pa.Table:
        """The visible rows of these ids, in their order, one for each time an id is given; absent ones are left out."""
        names, wanted = check_ids(text_array("ids", ids)), check_columns(columns)

        async def read(blocks: BlockReader, state: CollectionState) -> pa.Table:
            state.require(ROW_FAMILIES)
            rows = await find_rows(blocks, state, identities_of(names))
            return pa.table(await read_columns(blocks, state, rows[rows != ABSENT], wanted))

        return await self._views.read(self.spec, read)

    def scan(
        self, filter: Filter | None = None, columns: Sequence[str] = COLUMNS, page_rows: int = PAGE_ROWS
    ) -> AsyncGenerator[pa.Table, None]:
        """All visible rows that match, in pages of one moment, in the order in which they were last written.

        A follower that finds its moment gone after the first page raises `Unavailable`: begin again.
        """
        return self._pages(ListRequest(filter, columns, page_rows))

    async def _pages(self, request: ListRequest) -> AsyncGenerator[pa.Table, None]:
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            begun = False
            try:
                async with self._views.held(self.spec) as (blocks, state):
                    async for page in list_rows(blocks, state, request):
                        begun = True
                        yield page
                return
            except StateMoved:
                if begun or attempt == _ATTEMPTS_MAX:
                    raise

    async def count(self, filter: Filter | None = None) -> int:
        """How many visible rows match."""

        async def read(blocks: BlockReader, state: CollectionState) -> int:
            return len(await chosen_rows(blocks, state, filter))

        return await self._views.read(self.spec, read)

    async def facet(self, name: str, filter: Filter | None = None, limit: int = 100) -> FacetCounts:
        """The most frequent values of an attribute among the visible rows that match, each with its count."""
        counted = attribute(name).name

        async def read(blocks: BlockReader, state: CollectionState) -> FacetCounts:
            return await count_values(blocks, state, counted, filter, limit)

        return await self._views.read(self.spec, read)

    async def attributes(self) -> dict[str, AttributeType]:
        """The attributes that rows have, by name, with their types."""

        async def read(_: BlockReader, state: CollectionState) -> dict[str, AttributeType]:
            return dict(state.types)

        return await self._views.read(self.spec, read)

    async def current_version(self, document: str) -> str | None:
        """The version of a document that is current, or None."""
        check_name("document", document)

        async def read(blocks: BlockReader, state: CollectionState) -> str | None:
            state.require((Family.DOCUMENTS,))
            current = None
            for block in await document_blocks(blocks, state, [document]):
                entries = block.of_documents([document])
                marks = entries.filter(compute.not_equal(entries["mark"], int(DocumentMark.ROW)))
                for version, mark in zip(marks["version"].to_pylist(), marks["mark"].to_pylist(), strict=True):
                    current = version if mark == DocumentMark.CURRENT else None
            return current

        return await self._views.read(self.spec, read)

    async def stats(self) -> CollectionStats:
        async def read(_: BlockReader, state: CollectionState) -> CollectionStats:
            return stats_of(state)

        return await self._views.read(self.spec, read)

    async def verify(self) -> VerifyReport:
        """Read everything, and report whatever does not agree."""
        return await self._views.read(self.spec, verify_collection)


class Collection(CollectionReader):
    """Reads and writes of one collection."""

    def __init__(self, views: Views, writes: Writes, spec: CollectionSpec) -> None:
        super().__init__(views, spec)
        self._writes = writes

    async def upsert(
        self,
        table: pa.Table | pa.RecordBatch,
        *,
        document: str | None = None,
        version: str | None = None,
        source: str | None = None,
        position: int | None = None,
        durable: bool = False,
        timeout: float | None = None,
    ) -> WriteHandle:
        """Write rows; with `document` and `version` they stay hidden until that version is flipped to."""
        operation = self.upserting(table, document, version)
        return await self._write(operation, source, position, durable=durable, timeout=timeout)

    async def delete(
        self,
        ids: Iterable[str],
        *,
        source: str | None = None,
        position: int | None = None,
        durable: bool = False,
        timeout: float | None = None,
    ) -> WriteHandle:
        """Remove visible rows; ids that are not there are no error."""
        operation = self.deleting(ids)
        return await self._write(operation, source, position, durable=durable, timeout=timeout)

    async def delete_where(self, filter: Filter, *, durable: bool = False) -> int:
        """Remove the visible rows that match at this moment, and say how many; one that is written meanwhile is spared."""
        where = _filter_to_delete_by(filter)
        async with self._views.held(self.spec) as (blocks, state):
            ids = await chosen_rows(blocks, state, where)
            for page in id_pages(ids, _DELETED_AT_ONCE):
                names = await read_columns(blocks, state, page, ["id"])
                await self._write(Delete(identities_of(names["id"]), page), durable=durable)
        return len(ids)

    async def update(
        self,
        table: pa.Table | pa.RecordBatch,
        *,
        source: str | None = None,
        position: int | None = None,
        durable: bool = False,
        timeout: float | None = None,
    ) -> WriteHandle:
        """Give visible rows other values of attributes: a table of `id` and `attributes`, where null takes one away.

        Attributes that the table does not name, vectors and texts stay; ids that are not there are no error.
        """
        return await self._write(self.updating(table), source, position, durable=durable, timeout=timeout)

    async def begin_version(self, document: str, version: str, *, durable: bool = False) -> WriteHandle:
        """Drop what an earlier attempt wrote for this version, unless it is current."""
        return await self._write(Discard(Version(document, version)), durable=durable)

    async def discard_version(self, document: str, version: str, *, durable: bool = False) -> WriteHandle:
        """Drop the hidden rows of a version that will not become current."""
        return await self._write(Discard(Version(document, version)), durable=durable)

    async def flip(
        self,
        document: str,
        version: str,
        *,
        source: str | None = None,
        position: int | None = None,
        durable: bool = False,
    ) -> WriteHandle:
        """Make a version current and remove the rows of the one before, both at once."""
        return await self._write(Flip(Version(document, version)), source, position, durable=durable)

    async def remove_document(
        self, document: str, *, source: str | None = None, position: int | None = None, durable: bool = False
    ) -> WriteHandle:
        """Remove all versions of a document."""
        return await self._write(Remove(Version(document, "-").document), source, position, durable=durable)

    def upserting(self, table: pa.Table | pa.RecordBatch, document: str | None, version: str | None) -> Upsert:
        """The checked operation of an upsert."""
        if (document is None) != (version is None):
            raise InvalidInput("document or version is given", "rows of a version need both document and version")
        rows = self._checked(table)
        if document is not None and version is not None:
            return self._of_versions(rows, [(document, version, len(rows))])
        return Upsert(rows, identities_of(rows.names))

    def upserting_versions(self, table: pa.Table | pa.RecordBatch, versions: Sequence[tuple[str, str, int]]) -> Upsert:
        """The checked operation of an upsert of many versions: document, version and how many of the rows are its."""
        rows = self._checked(table)
        why = "versions share out the rows of the table"
        counts = [
            whole_number(f"the rows of {document!r}", count, 0, len(rows), why) for document, _, count in versions
        ]
        if sum(counts) != len(rows):
            raise InvalidInput(f"versions of {sum(counts)} rows", f"the table has {len(rows)}")
        return self._of_versions(rows, versions)

    @staticmethod
    def _of_versions(rows: Rows, versions: Sequence[tuple[str, str, int]]) -> Upsert:
        known = tuple((Version(document, version), count) for document, version, count in versions)
        return Upsert(rows, identities_of(rows.names), known, identities_of_versions(rows.names, versions))

    def _checked(self, table: pa.Table | pa.RecordBatch) -> Rows:
        known = self._writes.known_attributes(self.spec)
        return read_rows(table, self.spec.dimensions, self.spec.metric, known)

    def updating(self, table: pa.Table | pa.RecordBatch) -> Update:
        """The checked operation of an update."""
        names, columns = read_updates(table, self._writes.known_attributes(self.spec))
        return Update(identities_of(names), columns)

    def updating_document(self, document: str, version: str | None, values: Mapping[str, Scalar | None]) -> Operation:
        """The checked operation of an update of all rows of a version."""
        Version(document, version or "-")
        return UpdateDocument(document, version, shared_values(values, self._writes.known_attributes(self.spec)))

    def deleting(self, ids: Iterable[str]) -> Delete:
        """The checked operation of a delete."""
        return Delete(identities_of(check_ids(text_array("ids", ids).unique())))

    async def _write(
        self,
        operation: Operation,
        source: str | None = None,
        position: int | None = None,
        *,
        durable: bool = False,
        timeout: float | None = None,
    ) -> WriteHandle:
        change = Change(((self.spec, operation),), source, position)
        return await self._writes.write(change, timeout=timeout, durable=durable)


class Changes:
    """Operations on any number of collections that are flushed together, with the position they came from."""

    def __init__(self, source: str | None = None, position: int | None = None) -> None:
        self._operations: list[tuple[CollectionSpec, Operation]] = []
        self._source = source
        self._position = position

    def upsert(
        self,
        collection: Collection,
        table: pa.Table | pa.RecordBatch,
        *,
        document: str | None = None,
        version: str | None = None,
    ) -> Changes:
        return self._add(collection, collection.upserting(table, document, version))

    def upsert_versions(
        self, collection: Collection, table: pa.Table | pa.RecordBatch, versions: Sequence[tuple[str, str, int]]
    ) -> Changes:
        """Rows of many versions, each hidden until it is flipped to: (document, version, rows) in their order.

        One call for many small documents costs a fraction of one call each.
        """
        return self._add(collection, collection.upserting_versions(table, versions))

    def delete(self, collection: Collection, ids: Iterable[str]) -> Changes:
        return self._add(collection, collection.deleting(ids))

    def update(self, collection: Collection, table: pa.Table | pa.RecordBatch) -> Changes:
        """Other values of attributes, of rows by id: see `Collection.update`."""
        return self._add(collection, collection.updating(table))

    def update_document(
        self, collection: Collection, document: str, values: Mapping[str, Scalar | None], *, version: str | None = None
    ) -> Changes:
        """One value of each of some attributes for all rows of a version, the current one by default; None takes it away."""
        return self._add(collection, collection.updating_document(document, version, values))

    def begin_version(self, collection: Collection, document: str, version: str) -> Changes:
        return self._add(collection, Discard(Version(document, version)))

    def flip(self, collection: Collection, document: str, version: str) -> Changes:
        return self._add(collection, Flip(Version(document, version)))

    def remove_document(self, collection: Collection, document: str) -> Changes:
        return self._add(collection, Remove(Version(document, "-").document))

    def change(self) -> Change:
        """What was gathered."""
        return Change(tuple(self._operations), self._source, self._position)

    def _add(self, collection: Collection, operation: Operation) -> Changes:
        self._operations.append((collection.spec, operation))
        return self


def _filter_to_delete_by(filter: object) -> Filter:
    """Elsewhere None stands for all rows. A program whose filter is missing must not delete them."""
    if not isinstance(filter, Filter):
        why = f"the filter is {describe(filter)}, and None does not stand for all rows here"
        raise InvalidInput("nothing was deleted", why, "pass a filter, or drop the collection")
    return filter
