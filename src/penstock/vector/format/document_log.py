"""Which rows belong to which version of which document, and which version is current.

The block is a log: a row entry says that a row was written for a version, a mark says that a version became
current or that the document was removed. Later entries win; entries of dead rows mean nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.blocks import BlockBody
from penstock.errors import Corrupt
from penstock.vector.arrays import Array, Bools, Cut, Ids, Words, compute
from penstock.vector.format.arrow_stream import stream_parts
from penstock.vector.format.idset import IdSet

__all__ = ["DocumentBlock", "DocumentMark"]

_COLUMNS: Final[dict[str, pa.DataType]] = {
    "key": pa.uint64(),
    "document": pa.string(),
    "version": pa.string(),
    "mark": pa.uint8(),
    "id": pa.int64(),
}
_SCHEMA: Final = pa.schema(_COLUMNS)


class DocumentMark(IntEnum):
    ROW = 0  # the row `id` was written for this version
    CURRENT = 1  # this version became current
    REMOVED = 2  # the document was removed


@dataclass(frozen=True, slots=True)
class DocumentBlock:
    """Entries in the order in which they were made, as a compressed Arrow stream."""

    entries: pa.RecordBatch

    @property
    def keys(self) -> Words:
        """What decides on an entry's bucket: the hash of its document."""
        keys: Words = self.entries["key"].to_numpy()
        return keys

    @property
    def ids(self) -> Ids:
        """Rows; -1 in marks."""
        ids: Ids = self.entries["id"].to_numpy()
        return ids

    @property
    def size_bytes(self) -> int:
        return int(self.entries.nbytes)

    def __len__(self) -> int:
        return int(self.entries.num_rows)

    def take(self, rows: Cut) -> DocumentBlock:
        if isinstance(rows, slice):
            return DocumentBlock(self.entries[rows])
        positions = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return DocumentBlock(self.entries.take(positions))

    def of_documents(self, documents: Sequence[str]) -> pa.RecordBatch:
        """The entries of some documents."""
        wanted = compute.is_in(self.entries["document"], pa.array(list(documents), pa.string()))
        return self.entries.filter(wanted)

    def kept(self, dead: IdSet) -> Bools:
        """Living rows, and of each document the last mark if it names a current version."""
        marks = self.entries["mark"].to_numpy()
        kept: Bools = (marks == DocumentMark.ROW) & ~dead.contains(self.ids)
        places = np.flatnonzero(marks != DocumentMark.ROW)
        last = dict(zip(self.entries["document"].take(places).to_pylist(), places.tolist(), strict=True))
        lasting = np.array([place for place in last.values() if marks[place] == DocumentMark.CURRENT], np.int64)
        kept[lasting] = True
        return kept

    def encode(self) -> BlockBody:
        return BlockBody(stream_parts(self.entries), compress=True)

    @classmethod
    def decode(cls, body: memoryview) -> DocumentBlock:
        try:
            table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
            # A checksum tells of accidents alone: whoever writes to the store can make one.
            table.validate(full=True)
        except pa.ArrowException as error:
            raise Corrupt("a document block is not an Arrow stream", str(error)) from error
        if table.schema != _SCHEMA:
            raise Corrupt("a document block has other columns", str(table.schema.names))
        return cls(_one_batch(table))

    @classmethod
    def of(
        cls, keys: Words, documents: Sequence[str], versions: Sequence[str], marks: Array, ids: Ids
    ) -> DocumentBlock:
        columns = [pa.array(keys), pa.array(documents), pa.array(versions), pa.array(marks, pa.uint8()), pa.array(ids)]
        return cls(pa.record_batch(columns, schema=_SCHEMA))

    @classmethod
    def merge(cls, parts: Sequence[DocumentBlock]) -> DocumentBlock:
        if len(parts) == 1:
            return parts[0]
        return cls(_one_batch(pa.Table.from_batches([part.entries for part in parts], _SCHEMA)))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    return pa.record_batch([column.combine_chunks() for column in table.columns], schema=_SCHEMA)
