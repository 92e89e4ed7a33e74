"""The values of a block's series, packed by what they are, and decoded for the series that somebody asks for.

A decimal series is whole numbers: either differences less a slope that is the series' own (counters, and gauges that
wander), or distances from the middle (gauges that jump around it), whichever are smaller. Numbers of the same size stand
in a column together, so that pcodec never has to tell a quiet series from a loud one; a column of zeros is not stored.
Other series keep their doubles. Values that are no numbers are exceptions, put back by position, with their bits.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from penstock.errors import Corrupt
from penstock.timeseries.arrays import Array, Bools, Floats, Indices, Words
from penstock.timeseries.format.decimals import EXPONENT_MAX, POWERS, decimals_of
from penstock.timeseries.format.packed_column import packed, ranges, unpacked

__all__ = ["ValueColumns", "encode_values"]

# A plan says how a series is packed: exponent + 1 in the low four bits (0: doubles as they are), then one bit for
# distances from the middle instead of differences, then the size of its numbers (0: all are zero).
_EXPONENT_BITS: Final = 4
_EXPONENT_MASK: Final = (1 << _EXPONENT_BITS) - 1
_MIDDLE: Final = 1 << _EXPONENT_BITS
_SIZE_SHIFT: Final = _EXPONENT_BITS + 1
# A column holds numbers whose mean sizes differ by less than a factor of four.
_BITS_PER_SIZE: Final = 2
# Only a slope that is this much larger than the differences from it is worth its bytes.
_SLOPE_FACTOR: Final = 2.0
# Distances from the middle must be this much smaller than differences.
_MIDDLE_FACTOR: Final = 0.9

# exceptions, columns of numbers; then bytes of plans, bases, slopes, positions and bits of exceptions, doubles
_HEADER: Final = struct.Struct("<IHxxIIIIII")
# A column of numbers: its key and its bytes.
_COLUMN: Final = struct.Struct("<HxxI")

_NEGATIVE_ZERO: Final = np.uint64(1 << 63)
_INFINITE: Final = np.uint64(0x7FF0000000000000)


def encode_values(values: Floats, offsets: Indices) -> bytes:
    """The values of series that lie between `offsets`, none of them empty."""
    counts = np.diff(offsets)
    odd = _odd(values)
    exponents, numbers = decimals_of(_filled(values, offsets, odd) if len(odd) else values, offsets)
    plans, bases, slopes, residuals = _planned(exponents, numbers, offsets, counts)
    raw = np.repeat(exponents < 0, counts)
    odd = odd[~raw[odd]]
    keys = _keys(plans)
    first = np.zeros(len(values), np.bool_)
    first[offsets[:-1]] = True
    columns = []
    for key in np.unique(keys[keys >= 1 << _SIZE_SHIFT]).tolist():
        chosen = np.repeat(keys == key, counts)
        columns.append((key, packed(residuals[chosen if key & _MIDDLE else chosen & ~first])))
    parts = [
        packed(plans.astype(np.uint16)),
        packed(bases[exponents >= 0], search=True),
        packed(slopes[exponents >= 0], search=True),
        packed(odd.astype(np.uint32), search=True),
        packed(values[odd].view(np.uint64), search=True),
        packed(values[raw], search=True),
    ]
    header = _HEADER.pack(len(odd), len(columns), *map(len, parts))
    table = b"".join(_COLUMN.pack(key, len(column)) for key, column in columns)
    return b"".join([header, table, *parts, *(column for _, column in columns)])


def _planned(exponents: Array, numbers: Array, offsets: Indices, counts: Indices) -> tuple[Array, Array, Array, Array]:
    """For each series its plan, base and slope, and for every sample what is left of it."""
    firsts, lasts = offsets[:-1], offsets[1:] - 1
    if not len(counts):
        return exponents, exponents, exponents, numbers
    steps = np.diff(numbers, prepend=0)
    steps[firsts] = 0
    gaps = np.maximum(counts - 1, 1)
    slopes = np.rint((numbers[lasts] - numbers[firsts]) / gaps).astype(np.int64)
    along = steps - np.repeat(slopes, counts)
    along[firsts] = 0
    plain, sloped = (np.add.reduceat(np.abs(part), firsts) / gaps for part in (steps, along))
    bent = np.abs(slopes) > _SLOPE_FACTOR * sloped
    slopes = np.where(bent, slopes, 0)
    middles = np.rint(np.add.reduceat(numbers.astype(np.float64), firsts) / counts).astype(np.int64)
    around = numbers - np.repeat(middles, counts)
    spread = np.add.reduceat(np.abs(around), firsts) / counts
    size = np.where(bent, sloped, plain)
    middle = spread < _MIDDLE_FACTOR * size
    residuals = np.where(np.repeat(middle, counts), around, np.where(np.repeat(bent, counts), along, steps))
    size = np.where(middle, spread, size)
    # A series whose numbers are not all zero has a size of 1 at least.
    bits = np.ceil(np.log2(1 + size)).astype(np.int64)
    sizes = np.where(size > 0, 1 + bits // _BITS_PER_SIZE, 0)
    plans = np.where(exponents < 0, 0, exponents + 1 + _MIDDLE * middle + (sizes << _SIZE_SHIFT))
    return plans, np.where(middle, middles, numbers[firsts]), np.where(middle, 0, slopes), residuals


def _keys(plans: Array) -> Array:
    """What decides on the column of a series: its plan, with all exponents but 0 alike."""
    exponents = plans & _EXPONENT_MASK
    keys: Array = plans - exponents + np.minimum(exponents, 2)
    return keys


def _odd(values: Floats) -> Indices:
    """The positions of what has no whole number: infinities, NaNs, negative zeros."""
    bits = values.view(np.uint64)
    found: Indices = np.flatnonzero(((bits & _INFINITE) == _INFINITE) | (bits == _NEGATIVE_ZERO))
    return found


def _filled(values: Floats, offsets: Indices, odd: Indices) -> Floats:
    """Values with exceptions replaced by the one before in their series, or by zero."""
    good = np.ones(len(values), np.bool_)
    good[odd] = False
    good[offsets[:-1]] = True
    filled = values.copy()
    filled[np.intersect1d(odd, offsets[:-1])] = 0.0
    found: Floats = filled[np.maximum.accumulate(np.where(good, np.arange(len(values)), 0))]
    return found


@dataclass(frozen=True)
class ValueColumns:
    """The packed values of a block. Columns are unpacked when a series in them is asked for, and kept."""

    counts: Indices
    offsets: Indices
    plans: Array
    bases: Array
    slopes: Array
    positions: Indices
    exceptions: Floats
    doubles: memoryview
    packed: dict[int, memoryview]

    @classmethod
    def decode(cls, body: memoryview, counts: Indices) -> ValueColumns:
        if len(body) < _HEADER.size:
            raise Corrupt("a block of samples is cut short", f"its values have {len(body)} bytes")
        odd, columns, *sizes = _HEADER.unpack_from(body)
        at = _HEADER.size + columns * _COLUMN.size
        if len(body) < at:
            raise Corrupt("a block of samples is cut short", f"its values have {len(body)} bytes")
        table = [_COLUMN.unpack_from(body, _HEADER.size + place * _COLUMN.size) for place in range(columns)]
        sizes += [size for _, size in table]
        ends = np.cumsum([at, *sizes]).tolist()
        if ends[-1] != len(body):
            raise Corrupt("a block of samples is cut short", f"it has {len(body)} bytes and promises {ends[-1]}")
        parts = [body[end - size : end] for end, size in zip(ends[1:], sizes, strict=True)]
        plans = unpacked(parts[0], np.uint16, len(counts)).astype(np.int64)
        decimal = (plans & _EXPONENT_MASK) > 0
        bases, slopes = np.zeros(len(counts), np.int64), np.zeros(len(counts), np.int64)
        bases[decimal] = unpacked(parts[1], np.int64, int(decimal.sum()))
        slopes[decimal] = unpacked(parts[2], np.int64, int(decimal.sum()))
        positions = unpacked(parts[3], np.uint32, odd).astype(np.int64)
        exceptions: Words = unpacked(parts[4], np.uint64, odd)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        keyed = {key: part for (key, _), part in zip(table, parts[6:], strict=True)}
        found = cls(counts, offsets, plans, bases, slopes, positions, exceptions.view(np.float64), parts[5], keyed)
        found.check()
        return found

    def check(self) -> None:
        """Refuse what cannot have been written: without this a damaged number would be a wrong answer."""
        keys = set(np.unique(self.keys[self.keys >= 1 << _SIZE_SHIFT]).tolist())
        if keys != self.packed.keys() or int((self.plans & _EXPONENT_MASK).max(initial=0)) > EXPONENT_MAX + 1:
            raise Corrupt("a block of samples does not agree", "its columns are not those of its series")
        rising = np.all(self.positions[1:] > self.positions[:-1])
        if len(self.positions) and not (rising and int(self.positions[-1]) < int(self.offsets[-1])):
            raise Corrupt("a block of samples does not agree", "exceptions lie outside of it")

    @cached_property
    def keys(self) -> Array:
        return _keys(self.plans)

    @cached_property
    def _stored(self) -> Indices:
        """How many numbers each series has in its column."""
        differences = (self.plans & _EXPONENT_MASK > 0) & (self.plans & _MIDDLE == 0)
        stored: Indices = self.counts - differences
        return np.where((self.keys > 0) & (self.keys < 1 << _SIZE_SHIFT), 0, stored)

    @cached_property
    def _starts(self) -> Indices:
        """Where the numbers of each series begin in its column."""
        starts = np.empty(len(self.keys), np.int64)
        for key in np.unique(self.keys).tolist():
            mine = self.keys == key
            stored = self._stored[mine]
            starts[mine] = np.cumsum(stored) - stored
        return starts

    @cached_property
    def _columns(self) -> dict[int, Array]:
        return {}

    def _column(self, key: int) -> Array:
        found = self._columns.get(key)
        if found is None:
            rows = int(self._stored[self.keys == key].sum())
            kind, body = (np.float64, self.doubles) if key == 0 else (np.int64, self.packed[key])
            found = self._columns[key] = unpacked(body, kind, rows)
        return found

    def forget(self) -> None:
        """Let go of unpacked columns: whoever has all values does not need them."""
        self._columns.clear()

    def of_series(self, places: Indices) -> Floats:
        """The values of some series, one after the other."""
        counts = self.counts[places]
        starts = np.cumsum(counts) - counts
        found = np.empty(int(counts.sum()))
        keys = self.keys[places]
        present = np.unique(keys).tolist()
        for key in present:
            mine = keys == key
            values = self._of_key(key, places[mine])
            if len(present) == 1:
                found = values
            else:
                found[np.repeat(mine, counts)] = values
        if len(self.positions):
            self._put_exceptions(found, places, starts)
        return found

    def _of_key(self, key: int, places: Indices) -> Floats:
        """The values of series of one column."""
        counts, stored = self.counts[places], self._stored[places]
        residuals: Array | None = None
        if key == 0 or key >= 1 << _SIZE_SHIFT:
            residuals = self._column(key)
            if len(residuals) != int(stored.sum()):
                residuals = residuals[ranges(self._starts[places], stored)]
        if key == 0:
            assert residuals is not None
            return residuals.copy()
        if key & _MIDDLE:
            numbers = np.repeat(self.bases[places], counts)
            if residuals is not None:
                numbers += residuals
        else:
            numbers = _summed(residuals, self.bases[places], self.slopes[places], counts)
        values: Floats = numbers.astype(np.float64)
        exponents = (self.plans[places] & _EXPONENT_MASK) - 1
        if np.any(exponents != 0):
            values /= (
                POWERS[exponents[0]] if np.all(exponents == exponents[0]) else np.repeat(POWERS[exponents], counts)
            )
        return values

    def _put_exceptions(self, values: Floats, places: Indices, starts: Indices) -> None:
        series = np.searchsorted(self.offsets, self.positions, side="right") - 1
        at = np.full(len(self.counts), -1, np.int64)
        at[places] = starts
        mine: Bools = at[series] >= 0
        values[at[series[mine]] + self.positions[mine] - self.offsets[series[mine]]] = self.exceptions[mine]


def _summed(residuals: Array | None, bases: Array, slopes: Array, counts: Indices) -> Array:
    """Whole numbers from their differences: each series begins with its base."""
    ends = np.cumsum(counts)
    steps = np.repeat(slopes, counts)
    firsts = ends - counts
    if residuals is not None:
        later = np.ones(len(steps), np.bool_)
        later[firsts] = False
        steps[later] += residuals
    # Where a series begins, the step leads from the end of the one before to its base.
    steps[firsts] = 0
    ended = np.add.reduceat(steps, firsts) + bases if len(firsts) else bases
    steps[firsts] = bases
    steps[firsts[1:]] -= ended[:-1]
    return np.cumsum(steps)
