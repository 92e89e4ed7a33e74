"""The store at the edge of `penstock serve`, and the relay that brings its segments to the queue of telemetry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.cli.settings.configuration import Settings
from penstock.cli.settings.sharding import queue_outlet
from penstock.cli.settings.store_access import store_options
from penstock.objects import open_store
from penstock.observability import Observer
from penstock.quiver import Quiver, QuiverConfig
from penstock.relay import Relay, RelayConfig

__all__ = ["OpenEdge", "opened_edge"]

_SUBSCRIBER: Final = "queue"


@dataclass(frozen=True)
class OpenEdge:
    """What was opened: the store that takes bundles, and the relay behind it."""

    quiver: Quiver
    # Ends with the block; before that, only because of an error that the relay cannot wait out.
    relaying: asyncio.Future[None]


@asynccontextmanager
async def opened_edge(
    path: str, config_file: str | None, queue_url: str, settings: Settings, observer: Observer
) -> AsyncIterator[OpenEdge]:
    """The edge, relaying for the length of the block. What is not relayed at its end waits for the next start."""
    config = _configured(config_file)
    objects = await open_store(queue_url, observer=observer, **store_options(settings, queue_url))
    try:
        async with await Quiver.open(path, config, observer=observer) as quiver:
            relay_config = settings.of(RelayConfig)
            outlet = queue_outlet(
                objects,
                f"{path}/relay",
                settings,
                is_waiting=lambda number: _SUBSCRIBER in quiver.state.outstanding.get(number, ()),
                observer=observer,
            )
            relay = Relay(quiver, _SUBSCRIBER, outlet, relay_config, observer=observer)
            await quiver.register(_SUBSCRIBER)
            running = asyncio.ensure_future(relay.run())
            try:
                yield OpenEdge(quiver, running)
            finally:
                relay.stop()
                await asyncio.wait((running,))
                await outlet.close()
    finally:
        await objects.close()


def _configured(file: str | None) -> QuiverConfig:
    return QuiverConfig.from_yaml(Path(file).read_bytes())[1] if file else QuiverConfig()
