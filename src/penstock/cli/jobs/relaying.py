"""Runs relays for a command: the store, an outlet for each target, and an end in good order on Ctrl-C and SIGTERM."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from penstock.cli.settings.configuration import Settings
from penstock.cli.settings.sharding import queue_outlet
from penstock.cli.settings.store_access import store_options
from penstock.indexing import url_of
from penstock.objects import open_store
from penstock.observability import Observer
from penstock.quiver import Quiver, QuiverConfig
from penstock.relay import OtlpOutlet, Outlet, ParquetOutlet, Relay, RelayConfig

__all__ = ["Relaying"]


@dataclass(frozen=True, slots=True)
class RelayEnd:
    """How many segments wait for a target, and how many it has refused for good."""

    waiting: int
    dead_letters: int


@dataclass(frozen=True)
class Relaying:
    """What a command is given; `store_settings` is a file of YAML."""

    quiver: str
    instance: int
    settings: Settings
    headers: Mapping[str, str]
    observer: Observer
    store_settings: str | None = None

    def run(self, targets: Sequence[tuple[str, str]], *, until_empty: bool) -> dict[str, RelayEnd]:
        """What is left for each target at the end. Targets are a kind and where it is."""
        text = Path(self.store_settings).read_bytes() if self.store_settings else b""
        return asyncio.run(self._run(QuiverConfig.from_yaml(text)[1] if text else QuiverConfig(), targets, until_empty))

    async def _run(
        self, config: QuiverConfig, targets: Sequence[tuple[str, str]], until_empty: bool
    ) -> dict[str, RelayEnd]:
        async with AsyncExitStack() as stack:
            opened = await Quiver.open(self._path, config, instance=self.instance, observer=self.observer)
            store = await stack.enter_async_context(opened)
            relays = [await self._relay(kind, target, store, stack) for kind, target in targets]
            for relay in relays:
                # Before the first of them takes anything: a segment waits for those that are registered.
                await store.register(relay.subscriber)
            _stop_on_signals(relays)
            await store.flush()
            async with asyncio.TaskGroup() as group:
                for relay in relays:
                    group.create_task(relay.run(until_empty=until_empty))
            return {
                relay.subscriber: RelayEnd(
                    store.state.lag(relay.subscriber), len(store.state.subscriptions[relay.subscriber].rejected)
                )
                for relay in relays
            }

    @property
    def _path(self) -> str:
        return _absolute(self.quiver)

    async def _relay(self, kind: str, target: str, store: Quiver, stack: AsyncExitStack) -> Relay:
        config = self.settings.of(RelayConfig)
        outlet: Outlet
        if kind == "queue":
            outlet = await self._queue(target, store, stack)
        elif kind == "parquet":
            outlet = ParquetOutlet(_absolute(target), config.parquet, instance=self.instance)
        else:
            outlet = OtlpOutlet(target, config.otlp, headers=self.headers, observer=self.observer)
        stack.push_async_callback(outlet.close)
        return Relay(store, kind, outlet, config, observer=self.observer)

    async def _queue(self, target: str, store: Quiver, stack: AsyncExitStack) -> Outlet:
        url = url_of(target)
        objects = await open_store(url, observer=self.observer, **store_options(self.settings, url))
        stack.push_async_callback(objects.close)
        return queue_outlet(
            objects,
            f"{self._path}/relay",
            self.settings,
            is_waiting=lambda number: "queue" in store.state.outstanding.get(number, ()),
            instance=self.instance,
            observer=self.observer,
        )


def _stop_on_signals(relays: Sequence[Relay]) -> None:
    """The first one lets what is being sent come to an answer; a second one ends the process at once."""

    def stop(number: int) -> None:
        loop.remove_signal_handler(number)
        for each in relays:
            each.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)


def _absolute(path: str) -> str:
    return str(Path(path).resolve())
