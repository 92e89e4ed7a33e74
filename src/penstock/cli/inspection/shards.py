"""The shards of telemetry in a store, with what waits in the queue of each."""

from __future__ import annotations

from typing import Any

from penstock.buffer import ConsumerConfig, queued_now, shard_config
from penstock.cli.settings.configuration import Settings
from penstock.cli.settings.sharding import configured_routing
from penstock.cli.settings.store_access import store_options
from penstock.cli.settings.telemetry_place import telemetry_url
from penstock.objects import open_store

__all__ = ["listed_shards"]


async def listed_shards(store: str, settings: Settings) -> dict[str, Any]:
    """The layout in force, and each shard that any layout has had: one that gets no rows any more is draining."""
    url = telemetry_url(store)
    routing = await configured_routing(url, settings)
    config = settings.of(ConsumerConfig)
    opened = await open_store(url, read_only=True, **store_options(settings, url))
    try:
        found = []
        for shard in routing.shards:
            place = shard_config(config, shard).manifest_path
            manifest = await queued_now(opened, place)
            is_open = shard < routing.layout.shards
            found.append(
                {
                    "shard": shard,
                    "state": "open" if is_open else "draining" if len(manifest) else "drained",
                    "waiting": len(manifest),
                    "next_sequence": manifest.next_sequence,
                    "queue": place,
                }
            )
    finally:
        await opened.close()
    layout = routing.layout
    return {
        "version": routing.version,
        "layout": {"shards": layout.shards, "by": layout.by.value},
        "shards": found,
    }
