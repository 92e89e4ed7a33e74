"""What the telemetry job is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.buffer import ConsumerConfig, ShardKey, ShardLayout, shard_config, shard_path
from penstock.catalog import CatalogConfig
from penstock.errors import InvalidInput
from penstock.objects import StoreSpec
from penstock.telemetry import DataFileConfig, SeriesConfig
from penstock.timeseries import TimeSeriesConfig

__all__ = ["LandingLimits", "ShardingConfig", "TelemetryConfig"]


@dataclass(frozen=True, slots=True)
class LandingLimits:
    """What one round of the telemetry job takes and makes."""

    # Batch objects of one round.
    batches_per_round: int = 256
    # Of batch objects as they are stored; a round takes one at least.
    bytes_per_round: int = 256 << 20
    # A task takes more than this only when its last batch brings it above.
    bytes_per_task: int = 32 << 20
    # Of rows in memory: a task that brings more works on them in pieces, each with files of its own.
    unpacked_bytes_per_task: int = 512 << 20
    # A round takes fewer bytes after one that brought more rows than this, whose samples the driver holds.
    rows_per_round: int = 16_000_000
    # Least time from the beginning of one round to the next while following: the more, the larger are files.
    interval_seconds: float = 5.0
    # Data files of one table and tenant that a task may write. Rows of more hours are put together by day, then by year.
    partitions_max: int = 64
    # Tasks that are worked on at once in one process; Spark runs as many as it has cores.
    tasks_at_once: int = 2
    # Shards whose rounds may be under way at once in one job: each holds a round's samples in memory.
    rounds_at_once: int = 4

    def __post_init__(self) -> None:
        for name in (
            "batches_per_round",
            "bytes_per_round",
            "bytes_per_task",
            "unpacked_bytes_per_task",
            "rows_per_round",
            "partitions_max",
            "tasks_at_once",
            "rounds_at_once",
        ):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} = {getattr(self, name)!r}", "it must be at least 1")
        if not self.interval_seconds >= 0:
            raise InvalidInput(
                f"interval_seconds = {self.interval_seconds!r}", "it must be a number of seconds, 0 or larger"
            )


@dataclass(frozen=True, slots=True)
class ShardingConfig:
    """How many queues telemetry has, and how tenants are shared out among them."""

    # Number of queues, each with a consumer, a position and time series of its own. None: as the store has it.
    shards: int | None = None
    # What decides: `tenant`, or `tenant-and-table`.
    by: ShardKey = ShardKey.TENANT

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "by", ShardKey(self.by))
        except ValueError as error:
            known = ", ".join(ShardKey)
            raise InvalidInput(f"by = {self.by!r}", "there is no such choice", f"use one of {known}") from error
        if self.shards is not None:
            ShardLayout(self.shards, self.by)

    @property
    def layout(self) -> ShardLayout | None:
        """The layout that is to be in force; None to leave it as it is."""
        return None if self.shards is None else ShardLayout(self.shards, self.by)


@dataclass(frozen=True)
class TelemetryConfig:
    """One job: a store with the queue, the catalog with its data files, and the time series."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    # Below which the catalog and its data files lie.
    catalog_path: str = "lake"
    # Below which the time series lie; empty for none.
    series_path: str = "series"
    # Names this job's positions in both stores: one for each queue that lands here.
    source: str = "queue"
    # Which shard this is; its queue and its series lie below `shards/`, those of the first where there is only one.
    shard: int = 0
    limits: LandingLimits = field(default_factory=LandingLimits)
    files: DataFileConfig = field(default_factory=DataFileConfig)
    mapping: SeriesConfig = field(default_factory=SeriesConfig)
    consumer: ConsumerConfig = field(default_factory=ConsumerConfig)
    catalog: CatalogConfig = field(default_factory=CatalogConfig)
    series: TimeSeriesConfig = field(default_factory=TimeSeriesConfig)
    # What lies under the time series: options of `open_keyvalue`.
    keyvalue: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def of_shard(self, shard: int) -> TelemetryConfig:
        """The same job on the queue and the series of another shard; the catalog is the same."""
        if self.shard != 0:
            raise InvalidInput(f"shard {self.shard} has no shards of its own", "ask the first one")
        return replace(
            self,
            shard=shard,
            source=f"{self.source}-{shard:04}" if shard else self.source,
            series_path=shard_path(self.series_path, shard),
            consumer=shard_config(self.consumer, shard),
        )

    @property
    def spec(self) -> StoreSpec:
        return StoreSpec(self.url, dict(self.options))
