"""Blocks of samples: those of many series of one hour, by series id and time, each column compressed with pcodec.

Times are deltas within a series. Values are written as they are, or, in a series of whole numbers alone, as differences,
which compress better and encode in half the time; the two kinds are columns of their own. Of several samples of one series and
time the last one written counts. NaNs keep their bits: the one that marks a series as stale among them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from penstock.blocks import BlockBody
from penstock.errors import Corrupt
from penstock.timeseries.arrays import Array, Bools, Cut, Floats, Ids, Indices, Words
from penstock.timeseries.format.keys import keys_of
from penstock.timeseries.format.ordering import sorted_samples

__all__ = ["BLOCK_SAMPLES", "SampleBlock"]

# Samples of a block: about 70 KB of usual values and 500 KB of random ones never happen at once, see `pieces`.
BLOCK_SAMPLES: Final = 1 << 16

# hour, samples, series, bytes of each column: ids, counts, times, kinds of series, whole numbers, other values
_HEADER: Final = struct.Struct("<qIIIIIIII")

# Level 6 packs usual values 6 % better than 4 and encodes as fast; 8 gains 2 % more for a third of the speed.
_LEVEL: Final = 6
# Whole numbers that a float holds exactly.
_WHOLE_MAX: Final = float(1 << 53)


@dataclass(frozen=True)
class SampleBlock:
    """Samples of one hour: those of series `ids[i]` lie from `offsets[i]` to `offsets[i + 1]`, by rising time.

    Times are milliseconds since the hour began.
    """

    hour: int
    ids: Ids
    offsets: Indices
    times: Array
    values: Floats

    @classmethod
    def of(cls, hour: int, ids: Ids, times: Array, values: Floats) -> SampleBlock:
        """The block of samples in any order, each with the id of its series; later ones win."""
        order = sorted_samples(ids, times)
        if order is not None:
            ids, times, values = ids[order], times[order], values[order]
        starts = np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1]))) if len(ids) else np.empty(0, np.int64)
        offsets = np.append(starts, len(ids)).astype(np.int64)
        return cls(hour, ids[starts], offsets, times.astype(np.int32, copy=False), values)

    @property
    def size_bytes(self) -> int:
        return int(self.ids.nbytes + self.offsets.nbytes + self.times.nbytes + self.values.nbytes)

    def __len__(self) -> int:
        return len(self.times)

    @cached_property
    def rows(self) -> Ids:
        """The series id of every sample."""
        return np.repeat(self.ids, np.diff(self.offsets))

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

    def encode(self) -> BlockBody:
        return self._body

    @cached_property
    def _body(self) -> BlockBody:
        """Made once: a block is encoded beside the event loop before the batch of a flush is put together."""
        firsts = self.offsets[:-1]
        whole = _whole_series(self.values, firsts)
        counts = np.diff(self.offsets)
        integers = np.repeat(whole, counts)
        starts = np.cumsum(counts[whole]) - counts[whole]
        columns = [
            _packed(np.diff(self.ids, prepend=np.uint32(0)).astype(np.uint32)),
            _packed(counts.astype(np.uint32)),
            _packed(_differences(self.times.astype(np.int32, copy=False), firsts)),
            np.packbits(whole).tobytes(),
            _packed(_differences(self.values[integers].astype(np.int64), starts)),
            _packed(self.values[~integers]),
        ]
        header = _HEADER.pack(self.hour, len(self), len(self.ids), *map(len, columns))
        return BlockBody((header, *columns))

    @cached_property
    def stored_bytes(self) -> int:
        """Bytes of the body as it is stored."""
        return sum(len(part) for part in self._body.parts)

    @classmethod
    def decode(cls, body: memoryview) -> SampleBlock:
        if len(body) < _HEADER.size:
            raise Corrupt("a block of samples is cut short", f"it has {len(body)} bytes")
        hour, samples, series, *sizes = _HEADER.unpack_from(body)
        if _HEADER.size + sum(sizes) != len(body):
            raise Corrupt("a block of samples is cut short", f"it has {len(body)} bytes and promises {sum(sizes)}")
        ends = (_HEADER.size + np.cumsum(sizes)).tolist()
        parts = [body[end - size : end] for end, size in zip(ends, sizes, strict=True)]
        ids, counts, times, integers, floats = (_unpacked(part) for part in (*parts[:3], *parts[4:]))
        if len(parts[3]) != -(-series // 8):
            raise Corrupt("a block of samples does not agree", f"{len(parts[3])} bytes of kinds for {series} series")
        whole = np.unpackbits(np.frombuffer(parts[3], np.uint8), count=series).astype(np.bool_)
        offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        if not (
            len(ids) == len(counts) == series
            and len(times) == samples == offsets[-1] == len(integers) + len(floats)
            and len(integers) == counts[whole].sum()
            and (counts > 0).all()
        ):
            raise Corrupt("a block of samples does not agree", f"{series} series of {samples} samples were promised")
        values = _values(whole, counts, integers, floats)
        ids = np.cumsum(ids, dtype=np.uint32)
        return cls(hour, ids, offsets, _summed(times, offsets[:-1]).astype(np.int32), values)

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


def _whole_series(values: Floats, firsts: Indices) -> Bools:
    """Which series hold nothing but whole numbers, bit for bit: negative zeros and NaNs are none."""
    if not len(values):
        return np.zeros(0, np.bool_)
    with np.errstate(invalid="ignore"):
        back = values.astype(np.int64).astype(np.float64)
    same = (back.view(np.uint64) == values.view(np.uint64)) & (np.abs(values) <= _WHOLE_MAX)
    whole: Bools = np.logical_and.reduceat(same, firsts)
    return whole


def _values(whole: Bools, counts: Array, integers: Array, floats: Array) -> Floats:
    """The values of all series in their order."""
    if not len(integers):
        return floats.astype(np.float64, copy=False)
    starts = np.cumsum(counts[whole], dtype=np.int64) - counts[whole]
    numbers = _summed(integers, starts).astype(np.float64)
    if not len(floats):
        return numbers
    values = np.empty(len(numbers) + len(floats))
    chosen = np.repeat(whole, counts)
    values[chosen], values[~chosen] = numbers, floats
    return values


def _differences(numbers: Array, firsts: Indices) -> Array:
    """Each number less the one before in its series; the first ones less that of the series before."""
    found = np.diff(numbers, prepend=numbers.dtype.type(0))
    starts = numbers[firsts]
    found[firsts] = np.diff(starts, prepend=numbers.dtype.type(0))
    return found


def _summed(differences: Array, firsts: Indices) -> Array:
    """The numbers that these are the differences of."""
    if not len(differences):
        return differences.astype(np.int64)
    starts = np.cumsum(differences[firsts], dtype=np.int64)
    steps = differences.astype(np.int64)
    steps[firsts] = 0
    total = np.cumsum(steps)
    counts = np.diff(np.append(firsts, len(differences)))
    summed: Array = total + np.repeat(starts - total[firsts], counts)
    return summed


def _packed(column: Array) -> bytes:
    from pcodec import ChunkConfig, standalone  # an extra: the engine does without

    packed: bytes = standalone.simple_compress(np.ascontiguousarray(column), ChunkConfig(compression_level=_LEVEL))
    return packed


def _unpacked(body: memoryview) -> Array:
    from pcodec import standalone

    try:
        found = standalone.simple_decompress(bytes(body))
    except (RuntimeError, TypeError) as error:
        raise Corrupt("a column of samples cannot be decompressed", str(error)) from error
    return np.empty(0, np.int64) if found is None else found
