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
    """How much memory to use, what is refused, how long samples are kept, and what a query may read."""

    # Decoded blocks kept for the next query. Beyond it the least recently used ones are read again.
    cache_bytes: int = 512 * _MIB

    # Labels of one series, the name included. Prometheus and its relatives refuse more than 30 to 50 by default.
    labels_max: int = 64

    # Bytes of a label's name, and of its value.
    label_name_bytes_max: int = 1024
    label_value_bytes_max: int = 4096

    # Series of one day and tenant. Beyond it a write that brings new ones is refused: label bombs end here.
    bucket_series_max: int = 10_000_000

    # Hours whose samples are all older than this are removed whole. Infinity keeps everything.
    retention_seconds: float = math.inf

    # After the end of an hour, how long late samples are waited for before the hour is folded to one sorted run.
    fold_delay_seconds: float = 300.0

    # What one step of upkeep may read and write again: a write waits for one at most.
    upkeep_bytes: int = 32 * _MIB

    # Upkeep begins when nothing was written for so long. Infinity leaves it to `tend` and `compact`.
    upkeep_pause_seconds: float = 0.25

    # Tenants whose directories stay in memory between uses.
    tenants_open: int = 1024

    # A follower looks for a newer state when the one it has is older than this. Half of it is the pause between two
    # looks, a few small requests each.
    staleness_seconds: float = 0.5

    # Semantics and bounds of queries; series and samples bound `select` as well.
    engine: EngineConfig = field(default_factory=EngineConfig)

    # When writes are flushed and how much of them is held.
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
