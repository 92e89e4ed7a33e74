"""Looks at folders and buckets again and again while a job runs, and sends what has changed since the last look."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents import Notification, UploadNotification, last_seen_ns
from penstock.errors import PenstockError
from penstock.indexing.sending.listing import Listing

__all__ = ["Follower", "Unsent"]


class Told(NamedTuple):
    """What was last sent of an object: its version, None once it is gone, and the order of the look that saw it."""

    version: str | None
    look_ns: int


class Unsent:
    """Which events were not sent yet: the index learns of an event only when the job has taken it."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], Told] = {}

    def of(self, listing: Listing) -> list[Notification]:
        """The events of a look but for those that wait in the queue."""
        return [event for event in listing.events if not self._waits(event, listing)]

    def sent(self, events: Sequence[Notification]) -> None:
        """Called once they are durable: an event that was not sent must be sent by the next look."""
        self._told.update({_object(event): Told(_version(event), _look_ns(event)) for event in events})

    def _waits(self, event: Notification, listing: Listing) -> bool:
        """Whether the same was told, and the job has not taken it. What it has taken and still lacks is told again."""
        told, taken = self._told.get(_object(event)), listing.taken_ns.get(_object(event))
        return told is not None and told.version == _version(event) and (taken is None or taken < told.look_ns)


class Follower:
    """A thread that looks every `seconds`, until the context is left. What fails is told, and tried again."""

    def __init__(
        self,
        look: Callable[[], Awaitable[Listing]],
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
                listing = await self._look()
                fresh = self._unsent.of(listing)
                # Blocking, on a loop that has nothing else to do.
                self._send(fresh)
                self._unsent.sent(fresh)
                for failure in listing.failures:
                    self._failed(failure)
            except PenstockError as error:
                self._failed(error)
            except Exception as error:  # noqa: BLE001 - a thread that ends in silence would miss every later change
                self._failed(PenstockError("the places cannot be listed", f"{type(error).__name__}: {error}"))

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


def _look_ns(event: Notification) -> int:
    return last_seen_ns(event.sequencer, ())


def _version(event: Notification) -> str | None:
    return event.etag if isinstance(event, UploadNotification) else None
