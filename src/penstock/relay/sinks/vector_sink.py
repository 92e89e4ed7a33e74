"""Rows and deletions of a queue, into a vector store. The store's room is loaded by whoever opens the store."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.buffer import MetadataRange
from penstock.coordinator import WriteHandle
from penstock.errors import InvalidInput, NotFound
from penstock.observability import SILENT, Observer
from penstock.records import VectorOperation
from penstock.relay.sinks.payloads import VectorPayload, decode_table
from penstock.relay.sinks.rejected import RejectedRecords
from penstock.relay.sinks.store_sink import StoreSink

if TYPE_CHECKING:
    from penstock.vector import Changes, VectorStore

__all__ = ["VectorSink"]


class VectorSink(StoreSink["Changes"]):
    """Rows and deletions of a queue, into a vector store."""

    def __init__(
        self, store: VectorStore, source: str, rejected: RejectedRecords, *, observer: Observer = SILENT
    ) -> None:
        super().__init__(source, rejected, consumer="vector", observer=observer)
        self._store = store

    async def position(self) -> int | None:
        return self._store.position(self._source)

    def _begin(self, source: str | None, position: int | None) -> Changes:
        return self._store.changes(source, position)

    async def _add(self, changes: Changes, metadata: MetadataRange, record: bytes) -> None:
        operation, target = VectorPayload.decode(metadata.payload)
        table = decode_table(record)
        name = (target.tenant, target.index, target.model)
        if operation is VectorOperation.DELETE:
            with suppress(NotFound):  # Then there is nothing to delete.
                changes.delete(await self._store.collection(*name), _ids(table))
            return
        if not table.num_rows:
            return
        width = _width(_column(table, "vector"))
        collection = await self._store.collection(*name, dimensions=width, metric=target.metric)
        changes.upsert(collection, table)

    async def _write(self, changes: Changes) -> WriteHandle:
        return await self._store.write(changes)


def _column(table: pa.Table, name: str) -> Any:
    if name not in table.column_names:
        raise InvalidInput(f"a record without the column {name}", f"it has {', '.join(table.column_names) or 'none'}")
    return table.column(name)


def _ids(table: pa.Table) -> list[Any]:
    ids = _column(table, "id")
    kind = ids.type.value_type if pa.types.is_dictionary(ids.type) else ids.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise InvalidInput(f"a column id of {ids.type}", "ids are texts")
    found: list[Any] = ids.to_pylist()
    return found


def _width(vectors: Any) -> int:
    """The dimensions that all rows have to have, from their type or from the first of them."""
    kind = vectors.type
    # By the type alone: of some values Python has no objects.
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not is_list or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise InvalidInput(f"a column vector of {kind}", "its rows must be lists of numbers")
    first = vectors[0].as_py()
    if not first:
        raise InvalidInput("a column vector whose first row is empty", "its rows must be lists of numbers")
    return len(first)
