"""What is known of a tenant at one moment: its head and its directories. States never change; a commit makes a new one.

The hours of a day share the ids of its series. An hour that a store of format 1 wrote has ids of its own, and so has one
that began when the labels of its day could not be read: such an hour has a dictionary, and is a period of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import msgspec
import numpy as np
import pyroaring

from penstock.blocks import EMPTY, Directory, Shelf, StoreHeader
from penstock.timeseries.arrays import Indices, Words
from penstock.timeseries.fingerprints import Fingerprints
from penstock.timeseries.format.keys import INSIDE_BITS, SeriesFamily, day_of, hour_key, hour_of_key, tenant_prefix

__all__ = [
    "DICTIONARY",
    "INDEX",
    "LABELS",
    "METADATA",
    "PRESENCE",
    "SAMPLES",
    "SeriesStoreRecord",
    "TenantHead",
    "TenantRecord",
    "TenantState",
]

DICTIONARY: Final = Shelf(SeriesFamily.DICTIONARY)
LABELS: Final = Shelf(SeriesFamily.LABELS)
INDEX: Final = Shelf(SeriesFamily.INDEX)
SAMPLES: Final = Shelf(SeriesFamily.SAMPLES)
METADATA: Final = Shelf(SeriesFamily.METADATA)
PRESENCE: Final = Shelf(SeriesFamily.PRESENCE)


class SeriesStoreRecord(StoreHeader, frozen=True):
    """The first key of a store."""

    next_tenant: int
    # Grows with every commit, so that a repeat of nothing can still be waited for.
    commit: int = 0


class TenantRecord(msgspec.Struct, frozen=True):
    """What a tenant is, for good."""

    number: int
    created_ms: int


class TenantHead(msgspec.Struct, frozen=True):
    """What changes with every commit of a tenant."""

    commit: int = 0
    next_serial: int = 1
    # Everything before this hour was removed by retention and stays away.
    first_hour: int | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True)
class TenantState:
    """One tenant at one moment."""

    name: str
    record: TenantRecord
    head: TenantHead
    directories: Mapping[Shelf, Directory]
    # Fingerprints of the periods that were written to last, in the order of their ids.
    resident: Mapping[int, Fingerprints] = field(default_factory=dict)
    # The series of the hours that were written to last. Not to be changed.
    present: Mapping[int, pyroaring.BitMap] = field(default_factory=dict)
    # Directory pages that could not be read, by shelf, and those of them that were made again whole.
    lost: Mapping[Shelf, tuple[str, ...]] = field(default_factory=dict)
    remade: frozenset[str] = frozenset()

    @classmethod
    def new(cls, name: str, record: TenantRecord) -> TenantState:
        return cls(name, record, TenantHead(), {})

    @cached_property
    def prefix(self) -> bytes:
        """What the keys of all its data begin with."""
        return tenant_prefix(self.record.number)

    def directory(self, shelf: Shelf) -> Directory:
        return self.directories.get(shelf, EMPTY)

    @cached_property
    def hours(self) -> list[int]:
        """The hours that hold samples, oldest first."""
        lows = self.directory(SAMPLES).lows
        return (
            []
            if not len(lows)
            else [
                hour_of_key(key) for key in np.unique(lows >> np.uint64(INSIDE_BITS) << np.uint64(INSIDE_BITS)).tolist()
            ]
        )

    @cached_property
    def _own_hours(self) -> frozenset[int]:
        """The hours that have a dictionary: their ids are not those of their day."""
        return frozenset(_newest_serials(self.directory(DICTIONARY)))

    def period(self, hour: int) -> int:
        """The period whose ids the series of an hour have: its day, or the hour itself."""
        return hour if hour in self._own_hours else day_of(hour)

    def has_series(self, hour: int) -> bool:
        """Whether samples of an hour were written."""
        return hour in self._own_hours or hour in self._serials[2]

    def series_version(self, hour: int) -> tuple[int, ...]:
        """What is known of the series of an hour changes with this."""
        presence = self._serials[2]
        return *self.period_version(self.period(hour)), presence.get(hour, 0)

    def period_version(self, period: int) -> tuple[int, int]:
        """What is known of the series of a period changes with this."""
        labels, index, _ = self._serials
        return labels.get(period, 0), index.get(period, 0)

    @cached_property
    def _serials(self) -> tuple[Mapping[int, int], Mapping[int, int], Mapping[int, int]]:
        """The newest serials of labels and index by period, and of presence by hour."""
        labels, index, presence = (_newest_serials(self.directory(shelf)) for shelf in (LABELS, INDEX, PRESENCE))
        return labels, index, presence

    def lows(self, shelf: Shelf, hour: int) -> Words:
        """The buckets of a period on a shelf, in order."""
        lows = self.directory(shelf).lows
        first, end = np.searchsorted(lows, np.array([hour_key(hour), hour_key(hour + 1)], np.uint64))
        return lows[first:end]

    def rows(self, shelf: Shelf, hour: int) -> int:
        """The rows of a period on a shelf, replaced samples included."""
        directory = self.directory(shelf)
        first, end = np.searchsorted(directory.lows, np.array([hour_key(hour), hour_key(hour + 1)], np.uint64))
        return int(directory.rows[first:end].sum())

    def fragments(self, shelf: Shelf, hour: int) -> int:
        """The fragments of a period on a shelf."""
        lows = self.directory(shelf).fragments["low"]
        first, end = np.searchsorted(lows, np.array([hour_key(hour), hour_key(hour + 1)], np.uint64))
        return int(end - first)

    def owners(self, shelf: Shelf, hour: int, keys: Words) -> Indices:
        """For each key the place of the bucket of its period that owns it; the first also owns what lies before."""
        return np.maximum(np.searchsorted(self.lows(shelf, hour), keys, side="right").astype(np.int64) - 1, 0)


def _newest_serials(directory: Directory) -> dict[int, int]:
    fragments = directory.fragments
    if not len(fragments):
        return {}
    hours = fragments["low"] >> np.uint64(INSIDE_BITS)
    firsts = np.flatnonzero(np.concatenate(([True], hours[1:] != hours[:-1])))
    serials = np.maximum.reduceat(fragments["serial"], firsts).tolist()
    lows = fragments["low"][firsts].tolist()
    return {hour_of_key(low): serial for low, serial in zip(lows, serials, strict=True)}
