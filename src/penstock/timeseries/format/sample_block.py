"""Blocks of samples: those of many series of one hour, by series id and time. docs/format/timeseries.md draws them.

A block that was read is unpacked as far as it is asked: a query for few of its series leaves the others packed. Of
several samples of one series and time the last one written counts. NaNs keep their bits, staleness markers among them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from penstock.blocks import BlockBody
from penstock.errors import Corrupt
from penstock.timeseries.arrays import Array, Cut, Floats, Ids, Indices, Words, ranges
from penstock.timeseries.format.keys import keys_of
from penstock.timeseries.format.ordering import sorted_samples
from penstock.timeseries.format.packed_column import packed, unpacked
from penstock.timeseries.format.sample_block_v1 import decode_v1
from penstock.timeseries.format.time_runs import TimeRuns
from penstock.timeseries.format.value_columns import ValueColumns, encode_values

__all__ = ["BLOCK_SAMPLES", "SampleBlock"]

# Samples of a block: about 60 KB of usual values. Random ones would have 500 KB: see `fitting` in `write.draft`.
BLOCK_SAMPLES: Final = 1 << 16

# Where the first layout had its hour: no hour has this number.
_LAYOUT: Final = b"\x03samples"
_LAYOUT_V2: Final = b"\x02samples"
# layout, hour, samples, series, runs of times, bytes of each column: ids, runs, their lengths, times
_HEADER: Final = struct.Struct("<8sqIIIIIII")
# Of a block's series, fewer than one in so many are unpacked by themselves.
_FEW: Final = 4


class SampleBlock:
    """Samples of one hour: those of series `ids[i]` lie from `offsets[i]` to `offsets[i + 1]`, by rising time.

    Times are milliseconds since the hour began. Never changed once it is made.
    """

    def __init__(self, hour: int, ids: Ids, offsets: Indices, times: Array, values: Floats) -> None:
        self.hour = hour
        self.ids = ids
        self.offsets = offsets
        self.__dict__["times"] = times
        self.__dict__["values"] = values

    @classmethod
    def of(cls, hour: int, ids: Ids, times: Array, values: Floats) -> SampleBlock:
        """The block of samples in any order, each with the id of its series; later ones win."""
        order = sorted_samples(ids, times)
        if order is not None:
            ids, times, values = ids[order], times[order], values[order]
        starts = np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1]))) if len(ids) else np.empty(0, np.int64)
        offsets = np.append(starts, len(ids)).astype(np.int64)
        return cls(hour, ids[starts], offsets, times.astype(np.int32, copy=False), values)

    @cached_property
    def size_bytes(self) -> int:
        """Memory held once all of it is unpacked."""
        return int(self.ids.nbytes + self.offsets.nbytes + 12 * len(self))

    def __len__(self) -> int:
        return int(self.offsets[-1])

    @cached_property
    def times(self) -> Array:
        return self._runs.of_series(np.arange(len(self.ids)))

    @cached_property
    def values(self) -> Floats:
        values = self._columns.of_series(np.arange(len(self.ids)))
        self._columns.forget()
        return values

    @cached_property
    def rows(self) -> Ids:
        """The series id of every sample."""
        return np.repeat(self.ids, self.counts)

    @cached_property
    def counts(self) -> Indices:
        """The samples of every series."""
        return np.diff(self.offsets)

    @property
    def keys(self) -> Words:
        return keys_of(self.hour, self.rows)

    def take(self, rows: Cut) -> SampleBlock:
        """Some of the samples, which stay in their order."""
        return SampleBlock.of(self.hour, self.rows[rows], self.times[rows], self.values[rows])

    def series(self, first: int, end: int) -> SampleBlock:
        """The samples of some series that stand side by side, by their places in `ids`: nothing is copied."""
        low, high = int(self.offsets[first]), int(self.offsets[end])
        return SampleBlock(
            self.hour,
            self.ids[first:end],
            self.offsets[first : end + 1] - low,
            self.times[low:high],
            self.values[low:high],
        )

    def samples_of(self, places: Indices) -> tuple[Array, Floats]:
        """Times and values of some series, by their rising places in `ids`, one after the other."""
        if len(places) == len(self.ids):
            return self.times, self.values
        if "values" not in self.__dict__ and _FEW * len(places) <= len(self.ids):
            return self._runs.of_series(places), self._columns.of_series(places)
        rows: Cut
        if len(places) and int(places[-1]) - int(places[0]) == len(places) - 1:
            # Rising places without a gap, as those of one metric are.
            rows = slice(int(self.offsets[places[0]]), int(self.offsets[places[-1] + 1]))
        else:
            rows = ranges(self.offsets[places], self.counts[places])
        return self.times[rows], self.values[rows]

    def encode(self) -> BlockBody:
        return self._body

    @cached_property
    def _body(self) -> BlockBody:
        """Made once: a block is encoded beside the event loop before the batch of a flush is put together."""
        runs = TimeRuns.of(self.times.astype(np.int32, copy=False), self.offsets)
        columns = [packed(np.diff(self.ids, prepend=np.uint32(0)).astype(np.uint32)), *runs.encode()]
        sizes = map(len, columns)
        header = _HEADER.pack(_LAYOUT, self.hour, len(self), len(self.ids), len(runs.starts) - 1, *sizes)
        return BlockBody((header, *columns, encode_values(self.values, self.offsets)))

    @cached_property
    def stored_bytes(self) -> int:
        """Bytes of the body as it is stored."""
        return sum(len(part) for part in self._body.parts)

    @classmethod
    def decode(cls, body: memoryview) -> SampleBlock:
        if bytes(body[: len(_LAYOUT)]) not in (_LAYOUT, _LAYOUT_V2):
            return cls(*decode_v1(body))
        if len(body) < _HEADER.size:
            raise Corrupt("a block of samples is cut short", f"it has {len(body)} bytes")
        layout, hour, samples, series, runs, *sizes = _HEADER.unpack_from(body)
        ends = np.cumsum([_HEADER.size, *sizes]).tolist()
        if ends[-1] > len(body):
            raise Corrupt("a block of samples is cut short", f"it has {len(body)} bytes and declares {ends[-1]}")
        parts = [body[end - size : end] for end, size in zip(ends[1:], sizes, strict=True)]
        ids = np.cumsum(unpacked(parts[0], np.uint32, series), dtype=np.uint32)
        times = TimeRuns.decode(parts[1:], series, runs, samples)
        columns = ValueColumns.decode(body[ends[-1] :], times.counts, layout[0])
        found = cls.__new__(cls)
        found.hour, found.ids, found.offsets = hour, ids, columns.offsets
        found.__dict__["_runs"], found.__dict__["_columns"] = times, columns
        return found

    @cached_property
    def _runs(self) -> TimeRuns:
        raise AssertionError("a block has its times, or runs of them")

    @cached_property
    def _columns(self) -> ValueColumns:
        raise AssertionError("a block has its values, or columns of them")

    @classmethod
    def merge(cls, parts: Sequence[SampleBlock]) -> SampleBlock:
        if len(parts) == 1:
            return parts[0]
        return cls.of(
            parts[0].hour,
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.times for part in parts]),
            np.concatenate([part.values for part in parts]),
        )
