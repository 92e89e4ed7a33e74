"""The telemetry job for callers without an event loop, on any stage."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Closed
from penstock.landing.config import TelemetryConfig
from penstock.landing.lander import LandingSummary
from penstock.landing.landers import Landers
from penstock.landing.local import LocalStage
from penstock.landing.port import LandingStage
from penstock.landing.work import LandingSettings
from penstock.loops import LoopThread
from penstock.observability import SILENT, Observer

__all__ = ["LandingJob", "LocalTelemetryJob"]


class LandingJob:
    """Works the shards that it is given, or all there are. Close it, or use it as a context manager.

    `interrupt` may be called from any thread, or by a signal handler.
    """

    def __init__(
        self,
        config: TelemetryConfig,
        stage: LandingStage,
        shards: Sequence[int] | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
    ) -> None:
        self._stage = stage
        self._thread = LoopThread("penstock-telemetry")
        self._stopping = threading.Event()
        self._following: threading.Thread | None = None
        self._failure: BaseException | None = None
        try:
            self._loop, self._wake = self._thread.run(_bell())
            self._landers = self._thread.run(Landers.open(config, stage, shards, clock=clock, observer=observer))
        except BaseException:
            self._thread.close()
            raise

    @property
    def summary(self) -> LandingSummary:
        return self._landers.summary

    @property
    def positions(self) -> dict[int, int]:
        """Of each shard, the last sequence that both stores have; -1 before the first."""
        return self._landers.positions

    def run_available(self) -> LandingSummary:
        """Land everything that waits, and return."""
        try:
            return self._thread.run(self._landers.run_available(self._stopping.is_set))
        except Closed:
            if self._stopping.is_set():
                return self.summary
            raise

    def follow(self) -> LandingSummary:
        """Land what comes until `interrupt`."""
        try:
            return self._thread.run(self._landers.follow(self._stopping.is_set, self._wake))
        except Closed:
            if self._stopping.is_set():
                return self.summary
            raise

    def start(self) -> None:
        """Follow on a thread of its own; `await_end` waits for it."""

        def work() -> None:
            try:
                self.follow()
            except BaseException as error:  # noqa: BLE001  told by await_end
                self._failure = error

        self._following = threading.Thread(target=work, name="penstock-telemetry-follow", daemon=True)
        self._following.start()

    def await_end(self) -> None:
        """Wait until the job that was started ends; what ended it is raised."""
        if self._following is not None:
            self._following.join()
        if self._failure is not None:
            raise self._failure

    def interrupt(self) -> None:
        """End in good order: the round under way is given up, and done again by the next run."""
        self._stopping.set()
        self._stage.cancel()
        if not self._thread.closed:
            self._loop.call_soon_threadsafe(self._wake.set)

    def close(self) -> None:
        """End, and release the queue and both stores. Idempotent."""
        if self._thread.closed:
            return
        self.interrupt()
        if self._following is not None:
            self._following.join()
        try:
            self._thread.run(self._landers.close())
        finally:
            self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class LocalTelemetryJob(LandingJob):
    """The telemetry job in this process, without Java."""

    def __init__(
        self,
        config: TelemetryConfig,
        shards: Sequence[int] | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
    ) -> None:
        super().__init__(config, LocalStage(LandingSettings.of(config)), shards, clock=clock, observer=observer)


async def _bell() -> tuple[asyncio.AbstractEventLoop, asyncio.Event]:
    """Whoever rings it does so from another thread."""
    return asyncio.get_running_loop(), asyncio.Event()
