"""Blocks of the inverted index: for each label the series of an hour that have it, as a Roaring bitmap.

A flush adds one row for each label of its new series. Rows of one label are put together when blocks are merged.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyroaring

from penstock.blocks import BlockBody
from penstock.errors import Corrupt
from penstock.timeseries.arrays import (
    Array,
    Bools,
    Column,
    Cut,
    Indices,
    Words,
    buffer_of,
    bytes_column,
    codes_of,
    taken,
)
from penstock.timeseries.format.keys import INSIDE_BITS, label_hash
from penstock.timeseries.format.posting_bitmaps import single_ids

__all__ = ["IndexBlock"]

_COUNT: Final = struct.Struct("<Q")
_DECODED_FACTOR: Final = 3


@dataclass(frozen=True)
class IndexBlock:
    """Labels with the ids of their series: u64 rows, u64 keys, then an Arrow-like run of ends and bytes for each of
    name, value and bitmap; packed with zstd."""

    keys: Words
    names: Column
    values: Column
    bitmaps: Column

    @classmethod
    def of(
        cls, keys: Iterable[int], names: Sequence[str], values: Sequence[str], bitmaps: Sequence[bytes]
    ) -> IndexBlock:
        return cls(
            np.fromiter(keys, np.uint64),
            bytes_column([*map(str.encode, names)], pa.string()),
            bytes_column([*map(str.encode, values)], pa.string()),
            bytes_column(bitmaps, pa.binary()),
        )

    @cached_property
    def size_bytes(self) -> int:
        """Memory held, with the rows and bitmaps that are kept once they were asked for."""
        return _DECODED_FACTOR * int(self.keys.nbytes + self.names.nbytes + self.values.nbytes + self.bitmaps.nbytes)

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, rows: Cut) -> IndexBlock:
        places = np.arange(len(self))[rows]
        return IndexBlock(
            self.keys[rows], *(taken(column, places) for column in (self.names, self.values, self.bitmaps))
        )

    @cached_property
    def _rows(self) -> dict[str, Indices]:
        """The rows of each name."""
        if not len(self):
            return {}
        encoded = self.names.dictionary_encode()
        codes = codes_of(encoded)
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(encoded.dictionary)))
        return dict(zip(encoded.dictionary.to_pylist(), np.split(order, ends[:-1]), strict=True))

    @cached_property
    def _values(self) -> dict[str, list[str]]:
        return {}

    @cached_property
    def _bitmaps(self) -> dict[int, pyroaring.BitMap]:
        return {}

    @cached_property
    def _hashes(self) -> Words:
        """The keys without their hour."""
        return self.keys & np.uint64((1 << INSIDE_BITS) - 1)

    def label_names(self) -> Iterable[str]:
        return self._rows.keys()

    def label_values(self, name: str) -> list[str]:
        """The values of a label here."""
        found = self._values.get(name)
        if found is None:
            rows = self._rows.get(name)
            found = [] if rows is None else taken(self.values, rows).to_pylist()
            self._values[name] = found
        return found

    def series(self, name: str, value: str) -> pyroaring.BitMap | None:
        """The series that have a label; None if nothing is known of it here. Not to be changed."""
        for row in np.flatnonzero(self._hashes == np.uint64(label_hash(name, value))).tolist():
            if self.values[row].as_py() == value and self.names[row].as_py() == name:
                return self._series_at(row)
        return None

    def series_where(self, name: str, choose: Callable[[Column], Bools]) -> list[pyroaring.BitMap]:
        """The series of the values of a label that are chosen among all that are here. Not to be changed."""
        rows = self._rows.get(name)
        if rows is None:
            return []
        chosen = rows[choose(taken(self.values, rows))]
        ids, others = single_ids(self.bitmaps, chosen)
        found = [self._series_at(row) for row in others.tolist()]
        return [pyroaring.BitMap(ids), *found] if len(ids) else found

    def _series_at(self, row: int) -> pyroaring.BitMap:
        found = self._bitmaps.get(row)
        if found is None:
            found = self._bitmaps[row] = _bitmap(self.bitmaps[row].as_py())
        return found

    def encode(self) -> BlockBody:
        parts: list[Array] = []
        for column in (self.names, self.values, self.bitmaps):
            starts = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)
            data = np.frombuffer(column.buffers()[2] or b"", np.uint8)[starts[0] : starts[-1]]
            parts += [(starts[1:] - starts[0]).astype("<u4"), data]
        return BlockBody((_COUNT.pack(len(self)), self.keys.astype("<u8", copy=False), *parts), compress=True)

    @classmethod
    def decode(cls, body: memoryview) -> IndexBlock:
        if len(body) < _COUNT.size:
            raise Corrupt("a block of the index is cut short", f"it has {len(body)} bytes")
        (rows,) = _COUNT.unpack_from(body)
        at = _COUNT.size + 8 * rows
        if len(body) < at + 12 * rows:
            raise Corrupt("a block of the index is cut short", f"it has {len(body)} bytes for {rows} labels")
        keys = np.frombuffer(body, "<u8", rows, _COUNT.size)
        columns = []
        for kind in (pa.string(), pa.string(), pa.binary()):
            column, at = _column(body, at, rows, kind)
            columns.append(column)
        if at != len(body):
            raise Corrupt("a block of the index is inconsistent", f"{len(body) - at} bytes are too many")
        return cls(keys, *columns)

    @classmethod
    def merge(cls, parts: Sequence[IndexBlock]) -> IndexBlock:
        if len(parts) == 1:
            return parts[0]
        whole = cls(
            np.concatenate([part.keys for part in parts]),
            pa.concat_arrays([part.names for part in parts]),
            pa.concat_arrays([part.values for part in parts]),
            pa.concat_arrays([part.bitmaps for part in parts]),
        )
        order, starts = whole._groups()
        if len(starts) == len(whole):
            return whole
        first, counts = order[starts], np.diff(starts, append=len(order))
        # In the order in which labels come first; unions stand behind the bitmaps that are taken as they are.
        labels = np.argsort(first)
        kept = first[labels]
        shared = np.flatnonzero(counts[labels] > 1)
        places = kept.copy()
        places[shared] = len(whole) + np.arange(len(shared))
        unions = [whole._union(order[starts[label] :][: counts[label]]) for label in labels[shared].tolist()]
        bitmaps = pa.concat_arrays([whole.bitmaps, bytes_column(unions, pa.binary())])
        return cls(whole.keys[kept], taken(whole.names, kept), taken(whole.values, kept), taken(bitmaps, places))

    def _union(self, rows: Indices) -> bytes:
        found: bytes = pyroaring.BitMap.union(*map(_bitmap, taken(self.bitmaps, rows).to_pylist())).serialize()
        return found

    def _groups(self) -> tuple[Indices, Indices]:
        """The rows ordered by their labels, rows of one label in their order, and where each label begins."""
        names, values = self.names.dictionary_encode(), self.values.dictionary_encode()
        codes = codes_of(names) * len(values.dictionary) + codes_of(values)
        order = np.argsort(codes, kind="stable")
        return order, np.flatnonzero(np.diff(codes[order], prepend=-1))


def _bitmap(body: bytes) -> pyroaring.BitMap:
    try:
        return pyroaring.BitMap.deserialize(body)
    except (ValueError, RuntimeError) as error:
        raise Corrupt("a bitmap of the index cannot be read", str(error)) from error


def _column(body: memoryview, at: int, rows: int, kind: pa.DataType) -> tuple[Column, int]:
    if len(body) < at + 4 * rows:
        raise Corrupt("a block of the index is cut short", f"it has {len(body)} bytes")
    ends = np.frombuffer(body, "<u4", rows, at)
    at += 4 * rows
    size = int(ends[-1]) if rows else 0
    if len(body) < at + size or np.any(ends[1:] < ends[:-1]):
        raise Corrupt("a block of the index is inconsistent", f"it declares {size} bytes")
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    column: Column = pa.Array.from_buffers(kind, rows, [None, buffer_of(offsets), buffer_of(body[at : at + size])])
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Corrupt("a block of the index is inconsistent", str(error)) from error
    return column, at + size
