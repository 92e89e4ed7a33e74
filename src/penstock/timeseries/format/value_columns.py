"""The values of a block's series, packed by what they are, and decoded for the series that somebody asks for.

A decimal series is whole numbers, packed as its plan says (`value_plan`), and for some the last bits that those miss
(`near_decimals`). Numbers of the same size stand in a column together; a column of zeros is not stored, and series that
count the same share their numbers. Other series keep their doubles. Values that are no numbers are exceptions, put back
by position, with their bits.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from penstock.errors import Corrupt
from penstock.timeseries.arrays import Array, Bools, Floats, Indices, Words, ranges
from penstock.timeseries.format.decimals import EXPONENT_MAX, POWERS, decimals_of
from penstock.timeseries.format.distinct_runs import distinct_runs
from penstock.timeseries.format.near_decimals import near_decimals_of
from penstock.timeseries.format.packed_column import packed, unpacked
from penstock.timeseries.format.value_plan import (
    EXPONENT_MASK,
    MIDDLE,
    NEAR,
    SIZE_SHIFT,
    ZEROS_MAX,
    ZEROS_SHIFT,
    column_keys,
    plan_series,
)

__all__ = ["ValueColumns", "encode_values"]

# exceptions, columns of numbers; then bytes of plans, bases, slopes, positions and bits of exceptions, doubles, likes, units
_HEADER: Final = struct.Struct("<IHxxIIIIIIII")
# That of the second layout of blocks, which had neither likes nor units.
_HEADER_V2: Final = struct.Struct("<IHxxIIIIII")
# A column of numbers: its key and its bytes.
_COLUMN: Final = struct.Struct("<HxxI")

_NEGATIVE_ZERO: Final = np.uint64(1 << 63)
_INFINITE: Final = np.uint64(0x7FF0000000000000)


def encode_values(values: Floats, offsets: Indices) -> bytes:
    """The values of series that lie between `offsets`, none of them empty."""
    counts = np.diff(offsets)
    odd = _odd(values)
    filled = _filled(values, offsets, odd) if len(odd) else values
    exponents, numbers = decimals_of(filled, offsets)
    near, units = near_decimals_of(filled, offsets, exponents, numbers)
    plans, bases, slopes, residuals = plan_series(exponents, numbers, offsets)
    raw = np.repeat(exponents < 0, counts)
    odd = odd[~raw[odd]]
    keys = column_keys(plans)
    likes = _likes(np.where(raw, values.view(np.int64), residuals), keys, offsets)
    own = np.repeat(likes == np.arange(len(counts)), counts)
    first = np.zeros(len(values), np.bool_)
    first[offsets[:-1]] = True
    columns = []
    for key in np.unique(keys[keys >= 1 << SIZE_SHIFT]).tolist():
        chosen = np.repeat(keys == key, counts) & own
        columns.append((key, packed(residuals[chosen if key & MIDDLE else chosen & ~first])))
    parts = [
        packed((plans + NEAR * near).astype(np.uint16)),
        packed(bases[exponents >= 0], search=True),
        packed(slopes[exponents >= 0], search=True),
        packed(odd.astype(np.uint32), search=True),
        packed(values[odd].view(np.uint64), search=True),
        packed(values[raw & own], search=True),
        packed((np.arange(len(counts)) - likes).astype(np.uint32)),
        packed(units.astype(np.int32)),
    ]
    header = _HEADER.pack(len(odd), len(columns), *map(len, parts))
    table = b"".join(_COLUMN.pack(key, len(column)) for key, column in columns)
    return b"".join([header, table, *parts, *(column for _, column in columns)])


def _likes(words: Array, keys: Array, offsets: Indices) -> Indices:
    """For each series the first one whose column holds the same: itself, or one that counts the same things."""
    firsts, runs = distinct_runs(words, offsets)
    likes = firsts[runs]
    shared = (keys == keys[likes]) & ((keys == 0) | (keys >= 1 << SIZE_SHIFT))
    return np.where(shared, likes, np.arange(len(likes)))


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
    # For each series the one whose numbers it shares: itself, or one before.
    likes: Indices
    units: memoryview

    @classmethod
    def decode(cls, body: memoryview, counts: Indices, layout: int) -> ValueColumns:
        header = _HEADER if layout > 2 else _HEADER_V2
        if len(body) < header.size:
            raise Corrupt("a block of samples is cut short", f"its values have {len(body)} bytes")
        odd, columns, *sizes = header.unpack_from(body)
        at = header.size + columns * _COLUMN.size
        if len(body) < at:
            raise Corrupt("a block of samples is cut short", f"its values have {len(body)} bytes")
        table = [_COLUMN.unpack_from(body, header.size + place * _COLUMN.size) for place in range(columns)]
        fixed = len(sizes)
        sizes += [size for _, size in table]
        ends = np.cumsum([at, *sizes]).tolist()
        if ends[-1] != len(body):
            raise Corrupt("a block of samples is cut short", f"it has {len(body)} bytes and declares {ends[-1]}")
        parts = [body[end - size : end] for end, size in zip(ends[1:], sizes, strict=True)]
        plans = unpacked(parts[0], np.uint16, len(counts)).astype(np.int64)
        decimal = (plans & EXPONENT_MASK) > 0
        bases, slopes = np.zeros(len(counts), np.int64), np.zeros(len(counts), np.int64)
        bases[decimal] = unpacked(parts[1], np.int64, int(decimal.sum()))
        slopes[decimal] = unpacked(parts[2], np.int64, int(decimal.sum()))
        positions = unpacked(parts[3], np.uint32, odd).astype(np.int64)
        exceptions: Words = unpacked(parts[4], np.uint64, odd)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        keyed = {key: part for (key, _), part in zip(table, parts[fixed:], strict=True)}
        likes, units = np.arange(len(counts)), memoryview(b"")
        if layout > 2:
            likes -= unpacked(parts[6], np.uint32, len(counts)).astype(np.int64)
            units = parts[7]
        odds = exceptions.view(np.float64)
        found = cls(counts, offsets, plans, bases, slopes, positions, odds, parts[5], keyed, likes, units)
        found.check()
        return found

    def check(self) -> None:
        """Refuse what cannot have been written: without this a damaged number would be a wrong answer."""
        keys = set(np.unique(self.keys[self.keys >= 1 << SIZE_SHIFT]).tolist())
        if keys != self.packed.keys() or int((self.plans & EXPONENT_MASK).max(initial=0)) > EXPONENT_MAX + 1:
            raise Corrupt("a block of samples is inconsistent", "its columns do not match its series")
        likes = self.likes
        if np.any(likes < 0) or np.any((self.keys != self.keys[likes]) | (self.counts != self.counts[likes])):
            raise Corrupt("a block of samples is inconsistent", "series that share values differ")
        rising = np.all(self.positions[1:] > self.positions[:-1])
        if len(self.positions) and not (rising and int(self.positions[-1]) < int(self.offsets[-1])):
            raise Corrupt("a block of samples is inconsistent", "exceptions are out of range")

    @cached_property
    def keys(self) -> Array:
        return column_keys(self.plans)

    @cached_property
    def _stored(self) -> Indices:
        """How many numbers each series has in its column."""
        differences = (self.plans & EXPONENT_MASK > 0) & (self.plans & MIDDLE == 0)
        stored: Indices = self.counts - differences
        return np.where((self.keys > 0) & (self.keys < 1 << SIZE_SHIFT), 0, stored)

    @cached_property
    def _starts(self) -> Indices:
        """Where the numbers of each series begin in its column."""
        starts = np.empty(len(self.keys), np.int64)
        for key in np.unique(self.keys).tolist():
            mine = (self.keys == key) & self._is_own
            stored = self._stored[mine]
            starts[mine] = np.cumsum(stored) - stored
        return starts[self.likes]

    @cached_property
    def _is_own(self) -> Bools:
        """Whether each series has numbers that are stored for itself."""
        own: Bools = self.likes == np.arange(len(self.likes))
        return own

    @cached_property
    def _columns(self) -> dict[int, Array]:
        return {}

    def _column(self, key: int) -> Array:
        found = self._columns.get(key)
        if found is None:
            rows = int(self._stored[(self.keys == key) & self._is_own].sum())
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
        if key == 0 or key >= 1 << SIZE_SHIFT:
            residuals = self._column(key)
            if len(residuals) != int(stored.sum()) or not self._is_own[places].all():
                residuals = residuals[ranges(self._starts[places], stored)]
        if key == 0:
            assert residuals is not None
            return residuals.copy()
        bases, zeros = self.bases[places], self.plans[places] >> ZEROS_SHIFT & ZEROS_MAX
        if key & MIDDLE:
            numbers = np.repeat(bases, counts)
            if residuals is not None:
                numbers += residuals << np.repeat(zeros, counts) if zeros.any() else residuals
        elif zeros.any():
            numbers = _summed(residuals, np.zeros_like(bases), self.slopes[places], counts)
            numbers = (numbers << np.repeat(zeros, counts)) + np.repeat(bases, counts)
        else:
            numbers = _summed(residuals, bases, self.slopes[places], counts)
        values: Floats = numbers.astype(np.float64)
        exponents = (self.plans[places] & EXPONENT_MASK) - 1
        if np.any(exponents != 0):
            values /= (
                POWERS[exponents[0]] if np.all(exponents == exponents[0]) else np.repeat(POWERS[exponents], counts)
            )
        near = (self.plans[places] & NEAR) > 0
        if near.any():
            chosen = places[near]
            rows = ranges(self._unit_starts[chosen], self.counts[chosen])
            values.view(np.int64)[np.repeat(near, counts)] += self._units[rows]
        return values

    @cached_property
    def _unit_starts(self) -> Indices:
        held = np.where(self.plans & NEAR > 0, self.counts, 0)
        return np.cumsum(held) - held

    @cached_property
    def _units(self) -> Array:
        return unpacked(self.units, np.int32, int(self.counts[self.plans & NEAR > 0].sum())).astype(np.int64)

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
