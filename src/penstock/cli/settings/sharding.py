"""The shards of telemetry for commands: the routing of a store, queues to send to, and series to ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.buffer import (
    ProducerConfig,
    Routing,
    RoutingWatch,
    change_routing,
    read_routing,
    shard_config,
    shard_path,
)
from penstock.cli.settings.configuration import Settings
from penstock.cli.settings.store_access import follower_options, store_options
from penstock.landing import ShardedSeries, ShardingConfig
from penstock.objects import ObjectStore, open_store
from penstock.observability import SILENT, Observer
from penstock.relay import QueueOutlet, RelayConfig, ShardedOutlet
from penstock.timeseries import TimeSeriesConfig, TimeSeriesReader, TimeSeriesStore

__all__ = ["apply_sharding", "configured_routing", "queue_outlet", "sharded_series"]


async def configured_routing(url: str, settings: Settings, observer: Observer = SILENT) -> Routing:
    """The routing of the telemetry at `url`, after the layout that is configured was put in force."""
    layout = settings.of(ShardingConfig).layout
    store = await open_store(url, observer=observer, **store_options(settings, url))
    try:
        return await (read_routing(store) if layout is None else change_routing(store, layout, observer=observer))
    finally:
        await store.close()


async def apply_sharding(url: str, settings: Settings, observer: Observer = SILENT) -> None:
    """Put the layout that is configured in force, if one is."""
    if settings.of(ShardingConfig).layout is not None:
        await configured_routing(url, settings, observer)


def queue_outlet(
    store: ObjectStore,
    folder: str,
    settings: Settings,
    is_waiting: Callable[[int], bool],
    *,
    instance: int = 0,
    observer: Observer = SILENT,
) -> ShardedOutlet:
    """Where a relay sends segments: the queues at the store's root, with the relay's journals in `folder`."""
    config, producer = settings.of(RelayConfig), settings.of(ProducerConfig)
    name = f"{folder}/queue-{instance:03d}"

    def opened(shard: int) -> QueueOutlet:
        return QueueOutlet(
            store,
            f"{name}-shard-{shard:04}.json" if shard else f"{name}.json",
            config.queue,
            shard_config(producer, shard),
            is_waiting=is_waiting,
            instance=instance,
            observer=observer,
        )

    return ShardedOutlet(RoutingWatch(store), opened, f"{name}-layouts.json", observer=observer)


async def sharded_series(url: str, path: str, settings: Settings, observer: Observer = SILENT) -> ShardedSeries:
    """The series at `path` and those of the other shards beside it, for reading."""
    config, access = settings.of(TimeSeriesConfig), follower_options(settings, url)
    base = path.strip("/").rpartition("/")[0]

    async def opened(shard: int) -> TimeSeriesReader:
        place = shard_path(path.strip("/"), shard, base)
        options: dict[str, Any] = dict(access)
        return await TimeSeriesStore.open_reader(url, place, config, observer=observer, **options)

    store = await open_store(url, read_only=True, **store_options(settings, url))
    return ShardedSeries(store, opened, config, base=base)
