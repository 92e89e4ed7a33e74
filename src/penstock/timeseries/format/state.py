"""What is known of a tenant at one moment: its head and its directories. States never change; a commit makes a new one.

An hour that cannot be written to is named in `aside`; the others are not concerned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import msgspec
import numpy as np

from penstock.blocks import EMPTY, Directory, Shelf, StoreHeader
from penstock.timeseries.arrays import Indices, Words
from penstock.timeseries.fingerprints import Fingerprints
from penstock.timeseries.format.keys import INSIDE_BITS, SeriesFamily, hour_key, hour_of_key, tenant_prefix

__all__ = [
    "DICTIONARY",
    "INDEX",
    "LABELS",
    "METADATA",
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
    # Fingerprints of the hours that were written to last, in the order of their ids.
    resident: Mapping[int, Fingerprints] = field(default_factory=dict)
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
    def series_versions(self) -> Mapping[int, tuple[int, int]]:
        """For each hour the newest serials of its dictionary and index: what is known of its series changes with them."""
        newest = [_newest_serials(self.directory(shelf)) for shelf in (DICTIONARY, INDEX)]
        return {hour: (serial, newest[1].get(hour, 0)) for hour, serial in newest[0].items()}

    def lows(self, shelf: Shelf, hour: int) -> Words:
        """The buckets of an hour on a shelf, in order."""
        lows = self.directory(shelf).lows
        first, end = np.searchsorted(lows, np.array([hour_key(hour), hour_key(hour + 1)], np.uint64))
        return lows[first:end]

    def rows(self, shelf: Shelf, hour: int) -> int:
        """The rows of an hour on a shelf, replaced samples included."""
        directory = self.directory(shelf)
        first, end = np.searchsorted(directory.lows, np.array([hour_key(hour), hour_key(hour + 1)], np.uint64))
        return int(directory.rows[first:end].sum())

    def fragments(self, shelf: Shelf, hour: int) -> int:
        """The fragments of an hour on a shelf."""
        lows = self.directory(shelf).fragments["low"]
        first, end = np.searchsorted(lows, np.array([hour_key(hour), hour_key(hour + 1)], np.uint64))
        return int(end - first)

    def owners(self, shelf: Shelf, hour: int, keys: Words) -> Indices:
        """For each key the place of the bucket of its hour that owns it; the first also owns what lies before."""
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
