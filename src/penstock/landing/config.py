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
    """Limits of one round of the telemetry job."""

    # Maximum batch objects of one round.
    batches_per_round: int = 256
    # Maximum bytes of batch objects in one round, as stored. A round takes at least one batch object.
    bytes_per_round: int = 256 << 20
    # Bytes of batch objects that make one task. A task writes one data file per table, tenant and hour.
    bytes_per_task: int = 32 << 20
    # Maximum bytes of rows that a task holds in memory. A larger task works in pieces, each with its own data
    # files.
    unpacked_bytes_per_task: int = 512 << 20
    # Rows of a round above which the next one takes fewer bytes, because the driver holds a round's samples.
    rows_per_round: int = 16_000_000
    # Minimum time from the start of one round to the next with `--follow`, in seconds. A longer interval makes
    # larger files.
    interval_seconds: float = 5.0
    # Maximum data files of one table and tenant that a task writes. Rows of more hours are grouped by day, then
    # by year.
    partitions_max: int = 64
    # Tasks at once in one process. Spark runs as many as it has cores.
    tasks_at_once: int = 2
    # Shards whose rounds run at once in one job. Each holds a round's samples in memory.
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

    # Number of queues, 1 to 1024, each with its own consumer, position and time series. None keeps the store's
    # number.
    shards: int | None = None
    # What decides the queue of a row: `tenant`, or `tenant-and-table`.
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

    # URL of the store.
    url: str
    # Options of the store's service.
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    # Prefix of the catalog and its data files.
    catalog_path: str = "lake"
    # Prefix of the time series; empty for none.
    series_path: str = "series"
    # Name of this job's positions in both stores: one for each queue that lands there.
    source: str = "queue"
    # Number of the shard; set by `of_shard`.
    shard: int = 0
    # See `LandingLimits`.
    limits: LandingLimits = field(default_factory=LandingLimits)
    # See `DataFileConfig`.
    files: DataFileConfig = field(default_factory=DataFileConfig)
    # See `SeriesConfig`.
    mapping: SeriesConfig = field(default_factory=SeriesConfig)
    # How the queue is read and acknowledged.
    consumer: ConsumerConfig = field(default_factory=ConsumerConfig)
    # How the catalog is written.
    catalog: CatalogConfig = field(default_factory=CatalogConfig)
    # Settings of the time series.
    series: TimeSeriesConfig = field(default_factory=TimeSeriesConfig)
    # Options of `open_keyvalue` for the time series.
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
