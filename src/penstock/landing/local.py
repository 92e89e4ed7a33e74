"""The stage in this process, one task after the other: nothing to start, and open to a debugger."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from penstock.landing.port import LandingAnswer, LandingTask, given_up
from penstock.landing.work import LandingSettings, land_task

__all__ = ["LocalStage"]


class LocalStage:
    """The `LandingStage` in this process."""

    def __init__(self, settings: LandingSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._running = False
        self._given_up = False

    def land(self, tasks: Sequence[LandingTask]) -> list[LandingAnswer]:
        with self._lock:
            self._running, self._given_up = True, False
        try:
            return asyncio.run(self._land(tasks))
        finally:
            with self._lock:
                self._running = False

    def cancel(self) -> None:
        with self._lock:
            self._given_up = self._running

    async def _land(self, tasks: Sequence[LandingTask]) -> list[LandingAnswer]:
        store = await self._settings.spec.open()
        try:
            found = []
            for task in tasks:
                if self._given_up:
                    raise given_up()
                found.append(await land_task(self._settings, task, store))
            return found
        finally:
            await store.close()
