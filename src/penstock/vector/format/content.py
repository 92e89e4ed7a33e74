"""What blocks hold, decoded: rows of vectors, codes, columns and ids. Layouts: docs/format/vector.md.

Every block knows its internal ids. Decoded arrays are views of the bytes that were read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyroaring

from penstock.blocks import Block, BlockBody
from penstock.errors import Corrupt
from penstock.vector.arrays import Bools, Bytes, Column, Cut, Floats, Ids
from penstock.vector.format.arrow_stream import stream_parts
from penstock.vector.format.idset import IdSet

__all__ = ["ColumnBlock", "IdBlock", "PostingBlock", "RowBlock", "VectorBlock"]

_SHAPE: Final = struct.Struct("<II")
_COUNT: Final = struct.Struct("<Q")
# Types that columns can have, with some to spare.
_COLUMN_TYPES_MAX: Final = 64


class RowBlock(Block, Protocol):
    """A block of rows that have internal ids."""

    @property
    def ids(self) -> Ids:
        """The internal id of every row."""
        ...

    def kept(self, dead: IdSet, /) -> Bools:
        """Which rows a rewrite without the dead ones keeps."""
        ...


@dataclass(frozen=True, slots=True)
class VectorBlock:
    """Vectors with their ids: u32 rows, u32 dimensions, ids, then four-byte floats row by row."""

    ids: Ids
    vectors: Floats

    @property
    def size_bytes(self) -> int:
        return int(self.ids.nbytes + self.vectors.nbytes)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Cut) -> VectorBlock:
        return VectorBlock(self.ids[rows], self.vectors[rows])

    def kept(self, dead: IdSet) -> Bools:
        return ~dead.contains(self.ids)

    def encode(self) -> BlockBody:
        ids, vectors = self.ids.astype("<i8", copy=False), self.vectors.astype("<f4", copy=False)
        return BlockBody((_SHAPE.pack(*self.vectors.shape), ids, vectors))

    @classmethod
    def decode(cls, body: memoryview) -> VectorBlock:
        rows, width = _shape(body, lambda rows, width: 8 * rows + 4 * rows * width)
        ids = np.frombuffer(body, "<i8", rows, _SHAPE.size)
        vectors = np.frombuffer(body, "<f4", rows * width, _SHAPE.size + 8 * rows)
        return cls(ids, vectors.reshape(rows, width))

    @classmethod
    def merge(cls, parts: Sequence[VectorBlock]) -> VectorBlock:
        if len(parts) == 1:
            return parts[0]
        return cls(np.concatenate([part.ids for part in parts]), np.concatenate([part.vectors for part in parts]))


@dataclass(frozen=True, slots=True)
class PostingBlock:
    """A list's rows: u32 rows, u32 bytes a code, ids, then the codes contiguously."""

    ids: Ids
    codes: Bytes

    @property
    def size_bytes(self) -> int:
        return int(self.ids.nbytes + self.codes.nbytes)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Cut) -> PostingBlock:
        return PostingBlock(self.ids[rows], self.codes[rows])

    def kept(self, dead: IdSet) -> Bools:
        return ~dead.contains(self.ids)

    def encode(self) -> BlockBody:
        return BlockBody((_SHAPE.pack(*self.codes.shape), self.ids.astype("<i8", copy=False), self.codes))

    @classmethod
    def decode(cls, body: memoryview) -> PostingBlock:
        rows, width = _shape(body, lambda rows, width: 8 * rows + rows * width)
        ids = np.frombuffer(body, "<i8", rows, _SHAPE.size)
        codes = np.frombuffer(body, np.uint8, rows * width, _SHAPE.size + 8 * rows)
        return cls(ids, codes.reshape(rows, width))

    @classmethod
    def merge(cls, parts: Sequence[PostingBlock]) -> PostingBlock:
        if len(parts) == 1:
            return parts[0]
        return cls(np.concatenate([part.ids for part in parts]), np.concatenate([part.codes for part in parts]))


@dataclass(frozen=True)
class ColumnBlock:
    """One column's values with their ids, as a compressed Arrow stream of columns `id` and `value`."""

    ids: Ids
    values: Column

    @cached_property
    def size_bytes(self) -> int:  # asked several times of each block, and counted anew by Arrow
        return int(self.ids.nbytes + self.values.nbytes)

    @cached_property
    def texts(self) -> tuple[memoryview, memoryview]:
        """Where the text of each row begins and the last one ends, and the bytes of all: views for picking out a few."""
        _, starts, letters = self.values.buffers()
        return memoryview(starts).cast("i")[self.values.offset :], memoryview(letters if letters is not None else b"")

    def text(self, row: int) -> memoryview:
        """The bytes of one row's text."""
        starts, letters = self.texts
        return letters[starts[row] : starts[row + 1]]

    @cached_property
    def dense_from(self) -> int | None:
        """The first id, if each of the others is one more than the one before."""
        if not len(self.ids):
            return None
        first = int(self.ids[0])
        return first if int(self.ids[-1]) - first == len(self.ids) - 1 else None

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Cut) -> ColumnBlock:
        if isinstance(rows, slice):
            return ColumnBlock(self.ids[rows], self.values[rows])
        positions = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return ColumnBlock(self.ids[positions], self.values.take(positions))

    def kept(self, dead: IdSet) -> Bools:
        return ~dead.contains(self.ids)

    def encode(self) -> BlockBody:
        schema = _column_schema(self.values.type)
        batch = pa.RecordBatch.from_arrays([pa.array(self.ids), self.values], schema=schema)
        return BlockBody(stream_parts(batch), compress=True)

    @classmethod
    def decode(cls, body: memoryview) -> ColumnBlock:
        try:
            table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
            # A checksum tells of accidents alone: whoever writes to the store can make one, and a text that begins
            # outside its buffer would be read from there.
            table.validate(full=True)
            return cls(table["id"].combine_chunks().to_numpy(), table["value"].combine_chunks())
        except (pa.ArrowException, KeyError) as error:
            raise Corrupt("a column block is not an Arrow stream of ids and values", str(error)) from error

    @classmethod
    def merge(cls, parts: Sequence[ColumnBlock]) -> ColumnBlock:
        if len(parts) == 1:
            return parts[0]
        values = pa.concat_arrays([part.values for part in parts])
        return cls(np.concatenate([part.ids for part in parts]), values)


@dataclass(frozen=True, slots=True)
class IdBlock:
    """A set of ids: u64 base, then a Roaring bitmap of their distances from it."""

    ids: Ids

    @property
    def size_bytes(self) -> int:
        return int(self.ids.nbytes)

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Cut) -> IdBlock:
        return IdBlock(self.ids[rows])

    def kept(self, dead: IdSet) -> Bools:
        return ~dead.contains(self.ids)

    def encode(self) -> BlockBody:
        base = int(self.ids.min()) if len(self.ids) else 0
        bitmap = pyroaring.BitMap((self.ids - base).astype(np.uint32))
        bitmap.run_optimize()
        return BlockBody((_COUNT.pack(base), bitmap.serialize()))

    @classmethod
    def decode(cls, body: memoryview) -> IdBlock:
        if len(body) < _COUNT.size:
            raise Corrupt("an id block is cut short", f"it has {len(body)} bytes")
        (base,) = _COUNT.unpack_from(body)
        try:
            bitmap = pyroaring.BitMap.deserialize(bytes(body[_COUNT.size :]))
        except ValueError as error:
            raise Corrupt("an id block holds no Roaring bitmap", str(error)) from error
        return cls(np.frombuffer(bitmap.to_array(), np.uint32).astype(np.int64) + base)

    @classmethod
    def merge(cls, parts: Sequence[IdBlock]) -> IdBlock:
        return parts[0] if len(parts) == 1 else cls(np.unique(np.concatenate([part.ids for part in parts])))


@lru_cache(_COLUMN_TYPES_MAX)
def _column_schema(kind: pa.DataType) -> pa.Schema:
    return pa.schema({"id": pa.int64(), "value": kind})


def _shape(body: memoryview, size: Callable[[int, int], int]) -> tuple[int, int]:
    if len(body) >= _SHAPE.size:
        rows, width = _SHAPE.unpack_from(body)
        if len(body) == _SHAPE.size + size(rows, width):
            return rows, width
    raise Corrupt("a block has trailing bytes", f"it has {len(body)} bytes")
