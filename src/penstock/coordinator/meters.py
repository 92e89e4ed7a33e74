"""What a coordinator tells about itself. Nothing is emitted per write: numbers are taken at flushes and turns."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from penstock.coordinator.failure import words
from penstock.coordinator.machine import Machine
from penstock.coordinator.protocols import Epochs
from penstock.coordinator.watermarks import Mark, Waiters
from penstock.errors import PenstockError
from penstock.observability import Observer, names

__all__ = ["Meters"]

P = ParamSpec("P")


def _harmless(
    method: Callable[Concatenate[Meters, P], None],
) -> Callable[Concatenate[Meters, P], None]:
    """An observer that fails loses its numbers; those who wait for the coordinator lose nothing by it."""

    @wraps(method)
    def tell(self: Meters, /, *args: P.args, **kwargs: P.kwargs) -> None:
        with suppress(Exception):
            method(self, *args, **kwargs)

    return tell


class Meters:
    """The coordinator's metrics and events, under one coordinator's name."""

    def __init__(self, observer: Observer, name: str) -> None:
        self._observer = observer
        self._name = name

    @_harmless
    def gauges(self, machine: Machine[Any, Any], waiters: dict[Mark, Waiters]) -> None:
        gauge, name = self._observer.gauge, self._name
        gauge(names.COORDINATOR_PENDING_BYTES, machine.pending.bytes, coordinator=name)
        gauge(names.COORDINATOR_BUFFERED_BYTES, machine.room.bytes, coordinator=name)
        gauge(names.COORDINATOR_WAITERS, machine.room.waiting, coordinator=name, mark=Mark.APPLIED)
        for mark, waiting in waiters.items():
            gauge(names.COORDINATOR_WAITERS, len(waiting), coordinator=name, mark=mark)
        for mark, epoch in zip(Mark, machine.watermarks, strict=True):
            gauge(names.COORDINATOR_EPOCH, epoch, coordinator=name, mark=mark)

    @_harmless
    def began(self, epochs: Epochs, reason: str) -> None:
        if not epochs.repeat:
            self._observer.count(names.COORDINATOR_WRITES, len(epochs), coordinator=self._name)
            self._observer.count(names.COORDINATOR_FLUSHES, coordinator=self._name, reason=reason)

    @_harmless
    def reached(self, mark: Mark, seconds: float) -> None:
        self._observer.observe(names.COORDINATOR_FLUSH_SECONDS, seconds, coordinator=self._name, mark=mark)

    @_harmless
    def durable(self, seconds: float) -> None:
        self._observer.observe(names.COORDINATOR_WRITE_SECONDS, seconds, coordinator=self._name)

    @_harmless
    def waited(self, seconds: float) -> None:
        self._observer.observe(names.COORDINATOR_WAIT_SECONDS, seconds, coordinator=self._name)

    @_harmless
    def rejected(self) -> None:
        self._observer.count(names.COORDINATOR_REJECTED, coordinator=self._name)

    @_harmless
    def retrying(self, epochs: Epochs, error: BaseException, seconds: float) -> None:
        self._observer.count(names.COORDINATOR_FAILURES, coordinator=self._name, outcome="retried")
        self._observer.event(
            names.COORDINATOR_RETRYING,
            coordinator=self._name,
            epochs=str(epochs),
            attempt=epochs.attempt,
            error=words(error),
            pause_seconds=seconds,
        )

    @_harmless
    def failed(self, first: int, cause: PenstockError) -> None:
        self._observer.count(names.COORDINATOR_FAILURES, coordinator=self._name, outcome="failed")
        self._observer.event(names.COORDINATOR_FAILED, coordinator=self._name, first_epoch=first, error=words(cause))
