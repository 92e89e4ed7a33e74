"""One at a time through the store and Spark: micro-batches as they come, and a worker in the time between them.

A micro-batch waits for at most the round that is under way; the worker enters only when no micro-batch waits and there
is something to do. Closing wakes everybody up: whoever waits, or pauses inside, is refused with `Closed`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from penstock.errors import Closed

__all__ = ["SpareTimeWorker", "Turnstile"]

# What becomes wanted by the passing of time is noticed so soon.
_LOOK_SECONDS: Final = 1.0


class Turnstile:
    """Used by any number of threads."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._taken = False
        self.batches_waiting = 0
        self._closed = False

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Enter before any worker."""
        with self._condition:
            self.batches_waiting += 1
            try:
                self._condition.wait_for(lambda: self._closed or not self._taken)
            finally:
                self.batches_waiting -= 1
            self._enter()
        with self._leaving():
            yield

    @contextmanager
    def spare(self, wanted: Callable[[], bool]) -> Iterator[None]:
        """Enter when nobody else wants to and `wanted` holds, asked whenever somebody has left, and now and then."""
        with self._condition:
            while not self._condition.wait_for(lambda: self._closed or (self._free and wanted()), _LOOK_SECONDS):
                pass
            self._enter()
        with self._leaving():
            yield

    def pause(self, seconds: float) -> None:
        """Wait inside; `Closed` when that is over early."""
        with self._condition:
            if self._condition.wait_for(lambda: self._closed, seconds):
                self._refuse()

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def drain(self, seconds: float | None = None) -> bool:
        """Whether whoever is inside has left, by then at most; once it is closed, nobody enters any more."""
        with self._condition:
            return self._condition.wait_for(lambda: not self._taken, seconds)

    @property
    def _free(self) -> bool:
        return not self._taken and not self.batches_waiting

    def _enter(self) -> None:
        if self._closed:
            self._refuse()
        self._taken = True

    @contextmanager
    def _leaving(self) -> Iterator[None]:
        try:
            yield
        finally:
            with self._condition:
                self._taken = False
                self._condition.notify_all()

    def _refuse(self) -> None:
        raise Closed(
            "the indexing job is closed", "close() was called", "make a new one: it continues where this one stopped"
        )


class SpareTimeWorker:
    """A thread that works while a turnstile is free, until it is closed or an error ends it."""

    def __init__(
        self,
        turnstile: Turnstile,
        wanted: Callable[[], bool],
        work: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._turnstile, self._wanted, self._work, self._failed = turnstile, wanted, work, failed
        self._thread = threading.Thread(target=self._run, name="penstock-backlog", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for its end, which the turnstile's closing brings about."""
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                with self._turnstile.spare(self._wanted):
                    self._work()
        except Closed:
            return
        except Exception as error:  # noqa: BLE001 - whatever ended the thread must end the query too
            self._failed(error)
