"""The keys that are a time-series store's own: tenants, and 64-bit keys that begin with a period of time.

Blocks of a tenant lie under keys of 34 bits for the period and 30 bits for what is inside it: the number of a series,
or a hash of a label. Samples are filed by hour; labels and the index by day, because series live longer than an hour.
A period is an hour or a day, told apart by its number. So the blocks of a period stand side by side in every directory.
The rest of the layout is that of all block stores (`penstock.blocks.format.keys`); docs/format/timeseries.md draws it whole.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

import numpy as np
import xxhash

from penstock.blocks import check_name
from penstock.timeseries.arrays import Array, Column, Indices, Times, Words

__all__ = [
    "BUCKET_MS",
    "DAY_HOURS",
    "IDS_MAX",
    "INSIDE_BITS",
    "TENANTS",
    "TENANT_DATA",
    "SeriesFamily",
    "day_of",
    "hour_key",
    "hour_of_key",
    "hours_of",
    "keys_of",
    "label_hash",
    "label_key",
    "label_keys",
    "metric_key",
    "name_range",
    "parse_tenant_key",
    "period_hours",
    "tenant_key",
    "tenant_prefix",
]

TENANTS: Final = b"\x02"
TENANT_DATA: Final = b"\x10"

BUCKET_MS: Final = 3_600_000
DAY_HOURS: Final = 24
INSIDE_BITS: Final = 30
# Series that a period can have.
IDS_MAX: Final = 1 << INSIDE_BITS
# Hours before 1970 have keys too.
_HOUR_BIAS: Final = 1 << 33
# Days have numbers that no hour has: 2^53 milliseconds are fewer than 2^32 hours, less the days before 1970.
_DAY_BIAS: Final = 1 << 32
_FIRST_DAY: Final = 15 << 28
_VALUE_BITS: Final = 16
_NAME_BITS: Final = INSIDE_BITS - _VALUE_BITS

_NUMBER: Final = struct.Struct(">I")


class SeriesFamily(IntEnum):
    """What a block holds. The number is in keys and in block headers, and never changes its meaning."""

    DICTIONARY = 1  # fingerprints by series id, of hours that have ids of their own
    LABELS = 2  # labels by series id: the forward index
    INDEX = 3  # series ids by label: the inverted index
    SAMPLES = 4  # samples by series id
    METADATA = 5  # type, help and unit by metric; not by hour
    PRESENCE = 6  # which series of a day an hour has samples of


def tenant_key(tenant: str) -> bytes:
    return TENANTS + check_name("tenant", tenant)


def parse_tenant_key(key: bytes) -> str:
    return key[len(TENANTS) :].decode()


def tenant_prefix(number: int) -> bytes:
    return TENANT_DATA + _NUMBER.pack(number)


def hours_of(times: Times) -> Times:
    return times // BUCKET_MS


def day_of(hour: int) -> int:
    """The period that is the day of an hour (UTC)."""
    return _DAY_BIAS + hour // DAY_HOURS


def period_hours(period: int) -> range:
    """The hours of a period: one, or those of a day."""
    if period < _FIRST_DAY:
        return range(period, period + 1)
    first = (period - _DAY_BIAS) * DAY_HOURS
    return range(first, first + DAY_HOURS)


def hour_key(hour: int) -> int:
    """The lowest key of a period; those of the next one follow."""
    return (hour + _HOUR_BIAS) << INSIDE_BITS


def hour_of_key(key: int) -> int:
    return (key >> INSIDE_BITS) - _HOUR_BIAS


def keys_of(hour: int, ids: Array) -> Words:
    """The keys of series of a period."""
    keys: Words = np.uint64(hour_key(hour)) + ids.astype(np.uint64)
    return keys


def label_key(hour: int, name: str, value: str) -> int:
    """The key of a label. Those of one name stand side by side."""
    return hour_key(hour) + label_hash(name, value)


def label_hash(name: str, value: str) -> int:
    """The key of a label without its hour."""
    high = xxhash.xxh3_64_intdigest(name.encode()) >> (64 - _NAME_BITS)
    return (high << _VALUE_BITS) + (xxhash.xxh3_64_intdigest(value.encode()) >> (64 - _VALUE_BITS))


def label_keys(period: int, names: Sequence[str], name_of: Indices, values: Column) -> Words:
    """The keys of many labels: `name_of` points into `names`, and values are bytes."""
    firsts = np.array([name_range(period, name)[0] for name in names], np.uint64)
    hashes = np.fromiter(map(xxhash.xxh3_64_intdigest, values.to_pylist()), np.uint64, len(values))
    keys: Words = firsts[name_of] + (hashes >> np.uint64(64 - _VALUE_BITS))
    return keys


def name_range(hour: int, name: str) -> tuple[int, int]:
    """The keys of all labels of a name, first and end; other names may fall among them."""
    first = hour_key(hour) + (xxhash.xxh3_64_intdigest(name.encode()) >> (64 - _NAME_BITS) << _VALUE_BITS)
    return first, first + (1 << _VALUE_BITS)


def metric_key(name: str) -> int:
    return xxhash.xxh3_64_intdigest(name.encode())
