"""Looks at folders and buckets again and again while a job runs, and sends what has changed since the last look."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents import Notification, UploadNotification
from penstock.errors import PenstockError

__all__ = ["Follower", "Unsent"]


class Unsent:
    """Which events were not sent yet: the index learns of an event only when the job has taken it."""

    def __init__(self) -> None:
        # The version of every object that was last told; None when its end was.
        self._told: dict[tuple[str, str], str | None] = {}

    def of(self, events: Sequence[Notification]) -> list[Notification]:
        fresh = [event for event in events if self._told.get(_object(event), "") != _version(event)]
        self._told.update({_object(event): _version(event) for event in fresh})
        return fresh


class Follower:
    """A thread that looks every `seconds`, until the context is left. What fails is told, and tried again."""

    def __init__(
        self,
        look: Callable[[], Awaitable[Sequence[Notification]]],
        send: Callable[[Sequence[Notification]], None],
        seconds: float,
        *,
        failed: Callable[[PenstockError], None] = lambda _: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._look, self._send, self._seconds = look, send, seconds
        self._failed, self._clock = failed, clock
        self._unsent = Unsent()
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-follow", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A loop that an unforeseen error has ended needs no cancelling.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join()

    async def follow(self) -> None:
        """Look, send, wait, for ever."""
        while True:
            await self._clock.sleep(self._seconds)
            try:
                fresh = self._unsent.of(await self._look())
                # Blocking, on a loop that has nothing else to do.
                self._send(fresh)
            except PenstockError as error:
                self._failed(error)

    def _run(self) -> None:
        self._task = self._loop.create_task(self.follow())
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            return
        finally:
            self._loop.close()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _object(event: Notification) -> tuple[str, str]:
    return event.bucket, event.key


def _version(event: Notification) -> str | None:
    return event.etag if isinstance(event, UploadNotification) else None
