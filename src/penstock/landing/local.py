"""The stage in this process, a few tasks at once: nothing to start, and open to a debugger."""

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
        # The calls that are under way, and which of them are given up.
        self._calls: set[int] = set()
        self._given_up: set[int] = set()
        self._count = 0

    def land(self, tasks: Sequence[LandingTask]) -> list[LandingAnswer]:
        with self._lock:
            self._count += 1
            call = self._count
            self._calls.add(call)
        try:
            return asyncio.run(self._land(tasks, call))
        finally:
            with self._lock:
                self._calls.discard(call)
                self._given_up.discard(call)

    def cancel(self) -> None:
        with self._lock:
            self._given_up |= self._calls

    async def _land(self, tasks: Sequence[LandingTask], call: int) -> list[LandingAnswer]:
        store = await self._settings.spec.open()
        try:
            gate = asyncio.Semaphore(self._settings.limits.tasks_at_once)

            async def one(task: LandingTask) -> LandingAnswer:
                async with gate:
                    if call in self._given_up:
                        raise given_up()
                    return await land_task(self._settings, task, store)

            found = await asyncio.gather(*map(one, tasks), return_exceptions=True)
            for answer in found:
                if isinstance(answer, BaseException):
                    raise answer
            return [answer for answer in found if not isinstance(answer, BaseException)]
        finally:
            await store.close()
