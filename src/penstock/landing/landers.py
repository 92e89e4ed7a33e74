"""The telemetry job over all shards of a store, or over some of them: a lander for each, side by side in one process.

Which shards there are, the routing says; one that is added later is taken up when it is noticed, and those of earlier
layouts are drained like the others. A shard that fails ends the job, after what the others have under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from penstock.buffer import RoutingWatch
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import InvalidInput
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.landing.config import TelemetryConfig
from penstock.landing.lander import Lander, LandingSummary, first_of
from penstock.landing.port import LandingStage
from penstock.objects import ObjectStore
from penstock.observability import SILENT, Observer

__all__ = ["Landers"]


class Landers:
    """Made by `open`. Belongs to one event loop. `shards` names those that are worked here; None for all there are."""

    def __init__(
        self,
        config: TelemetryConfig,
        stage: LandingStage,
        store: ObjectStore,
        shards: Sequence[int] | None,
        clock: Clock,
        entropy: Entropy,
        observer: Observer,
    ) -> None:
        self._config, self._stage, self._store = config, stage, store
        self._shards = None if shards is None else sorted(set(shards))
        self._clock, self._entropy, self._observer = clock, entropy, observer
        self._watch = RoutingWatch(store, clock=clock, entropy=entropy)
        self._landers: dict[int, Lander] = {}
        self._gate = asyncio.Semaphore(config.limits.rounds_at_once)
        self.summary = LandingSummary()

    @classmethod
    async def open(
        cls,
        config: TelemetryConfig,
        stage: LandingStage,
        shards: Sequence[int] | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> Landers:
        """Take the queues of these shards over, with both stores of each."""
        store = await config.spec.open(probe=True, clock=clock, observer=observer)
        opened = cls(config, stage, store, shards, clock, entropy, observer)
        try:
            await opened._take_up()
        except BaseException:
            await opened.close()
            raise
        return opened

    async def close(self) -> None:
        """Write what is acknowledged, and release the stores."""
        try:
            await _all(lander.close() for lander in self._landers.values())
        finally:
            await self._store.close()

    @property
    def positions(self) -> dict[int, int]:
        """Of each shard, the last sequence that both stores have; -1 before the first."""
        return {shard: lander.position for shard, lander in self._landers.items()}

    async def run_available(self, stopped: Callable[[], bool] = lambda: False) -> LandingSummary:
        """Work until nothing waits in any shard."""
        worked = 0
        while worked < len(self._landers) and not stopped():
            await _all(self._until_empty(lander, stopped) for lander in list(self._landers.values())[worked:])
            worked = len(self._landers)
            await self._take_up()
        return self.summary

    async def follow(self, stopped: Callable[[], bool], wake: asyncio.Event) -> LandingSummary:
        """Work as batches come, and take up shards that are added. Each shard has its own pace."""
        failed = asyncio.Event()
        tasks: dict[int, asyncio.Task[None]] = {}

        def ends() -> bool:
            return failed.is_set() or stopped()

        async def work(lander: Lander) -> None:
            try:
                await lander.follow(ends, wake, self._gate)
            finally:
                # One that ends by itself has failed, and ends the others; each finishes what it has under way.
                failed.set()
                wake.set()

        try:
            while not ends():
                for shard in self._landers.keys() - tasks.keys():
                    tasks[shard] = asyncio.ensure_future(work(self._landers[shard]))
                await first_of(wake.wait(), self._clock.sleep(max(self._config.limits.interval_seconds, 1.0)))
                if not ends():
                    await self._take_up()
        finally:
            failed.set()
            wake.set()
            found = await asyncio.gather(*tasks.values(), return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return self.summary

    async def _take_up(self) -> None:
        """Open what is not open yet."""
        known = (await self._watch.current()).shards
        wanted = known if self._shards is None else self._shards
        unknown = [shard for shard in wanted if shard not in known]
        if unknown:
            why = f"the store has shards 0 to {known[-1]}"
            raise InvalidInput(f"there is no shard {unknown[0]}", why, "set `shards` in the configuration first")
        for shard in wanted:
            if shard not in self._landers:
                self._landers[shard] = await Lander.open(
                    self._config.of_shard(shard),
                    self._stage,
                    [self._config.of_shard(other).source for other in known if other != shard],
                    summary=self.summary,
                    clock=self._clock,
                    entropy=self._entropy,
                    observer=self._observer,
                )

    async def _until_empty(self, lander: Lander, stopped: Callable[[], bool]) -> None:
        while not stopped():
            async with self._gate:
                if not await lander.step():
                    return


async def _all(work: Iterable[Awaitable[None]]) -> None:
    """Everything is done or has failed when this returns; the first failure is raised."""
    for one in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(one, BaseException):
            raise one
