"""The bounds of a time-series store, each with the reason for its default. A contradiction is refused at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from penstock.coordinator import CoordinatorConfig
from penstock.errors import InvalidInput
from penstock.timeseries.promql import EngineConfig

__all__ = ["TimeSeriesConfig"]

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class TimeSeriesConfig:
    """Memory, limits, retention and upkeep of a time-series store."""

    # Memory for decoded blocks, in bytes.
    cache_bytes: int = 512 * _MIB

    # Maximum labels of one series, including its name. A write with more is refused.
    labels_max: int = 64

    # Maximum length of a label's name, in bytes.
    label_name_bytes_max: int = 1024
    # Maximum length of a label's value, in bytes.
    label_value_bytes_max: int = 4096

    # Maximum series of one tenant in one day. Writes of new series above it are refused, writes of known series
    # are not.
    bucket_series_max: int = 10_000_000

    # Age from which samples are removed, in seconds, by whole hours. Infinity keeps everything.
    retention_seconds: float = math.inf

    # Time from the end of an hour until its samples are merged into one sorted run, in seconds, to wait for late
    # samples.
    fold_delay_seconds: float = 300.0

    # Maximum bytes that one step of upkeep rewrites. A write waits for at most one step.
    upkeep_bytes: int = 32 * _MIB

    # Time without writes after which upkeep starts, in seconds. Infinity leaves it to `tend` and `compact`.
    upkeep_pause_seconds: float = 0.25

    # Tenants whose directories stay in memory.
    tenants_open: int = 1024

    # Age from which a follower checks for a newer state, in seconds. It checks twice in that time, with a few
    # small requests each.
    staleness_seconds: float = 0.5

    # Settings and limits of queries. The limits on series and samples apply to `select` too.
    engine: EngineConfig = field(default_factory=EngineConfig)

    # When writes are flushed and how much is buffered.
    coordinator: CoordinatorConfig = field(default_factory=CoordinatorConfig)

    def __post_init__(self) -> None:
        for name in ("cache_bytes", "labels_max", "label_name_bytes_max", "label_value_bytes_max", "upkeep_bytes"):
            self._check(getattr(self, name) > 0, name, "it must be more than zero")
        self._check(0 < self.bucket_series_max <= 1 << 30, "bucket_series_max", "ids of a bucket have 30 bits")
        self._check(self.tenants_open > 0, "tenants_open", "it must be more than zero")
        self._check(self.retention_seconds > 0, "retention_seconds", "it is a duration, or infinity")
        self._check(self.fold_delay_seconds >= 0, "fold_delay_seconds", "it must be a number of seconds, 0 or larger")
        self._check(self.upkeep_pause_seconds > 0, "upkeep_pause_seconds", "it is a duration, or infinity")
        self._check(self.staleness_seconds >= 0, "staleness_seconds", "it must be a number of seconds, 0 or larger")

    def _check(self, holds: bool, name: str, why: str) -> None:
        if not holds:
            raise InvalidInput(f"{name} = {getattr(self, name)!r}", why)
