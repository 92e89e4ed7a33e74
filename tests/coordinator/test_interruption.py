"""Every waiter is answered whatever a handler raises: also what is no `Exception`, and what ends a program."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.coordinator.stores import PatientHandler, Upserts, outcome

from penstock.coordinator import Coordinator, CoordinatorConfig, Epochs, Flushed, State, Watermarks
from penstock.errors import OutcomeUnknown, PenstockError, Unavailable
from penstock.observability import LiveObserver


class Interruption(BaseException):
    """No `Exception`, and nothing that the loop knows."""


class Wordless(Exception):
    """An error that cannot even be printed."""

    def __str__(self) -> str:
        raise ValueError("no words")


class Demanding(PenstockError):
    """One of ours that is not made like the others."""

    def __init__(self) -> None:
        super().__init__("made without words")


class WordlessOutage(Unavailable):
    """Transient, and cannot be printed."""

    def __str__(self) -> str:
        raise ValueError("no words")


ENDS_THE_PROGRAM = (KeyboardInterrupt, SystemExit)
ERRORS = (
    *ENDS_THE_PROGRAM,
    GeneratorExit,
    asyncio.CancelledError,
    Interruption,
    Wordless,
    Demanding,
    StopAsyncIteration,
    lambda: BaseExceptionGroup("several", [KeyboardInterrupt()]),
)


class InterruptedHandler:
    """Raises once where it is told to, and then does its work."""

    def __init__(self, error: Callable[[], BaseException], place: str) -> None:
        self._error = error
        self._place: str | None = place

    def empty(self) -> Upserts:
        return Upserts()

    async def flush(self, delta: Upserts, snapshot: Any, epochs: Epochs) -> Flushed[Any]:
        await asyncio.sleep(0)
        self._reach("flush")
        return Flushed(delta.onto(snapshot), self._durable)

    async def _durable(self) -> None:
        await asyncio.sleep(0)
        self._reach("durable")

    def _reach(self, place: str) -> None:
        if self._place == place:
            self._place = None
            raise self._error()


class Loop:
    """asyncio's own loop, turned by hand: what hangs is still not done after many turns, and no time passes."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.ended_by: list[type[BaseException]] = []
        self.unhandled: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.unhandled.append(context))

    def turn(self, times: int = 50) -> None:
        for _ in range(times):
            self.loop.call_soon(self.loop.stop)
            try:
                self.loop.run_forever()
            except ENDS_THE_PROGRAM as error:
                self.ended_by.append(type(error))

    def run(self, awaitable: Awaitable[Any]) -> Any:
        task = self.loop.create_task(outcome(awaitable))
        self.turn()
        assert task.done(), "it hangs"
        return task.result()

    def close(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.turn()
        self.loop.close()


async def _coordinator(handler: Any, **settings: Any) -> Coordinator[Upserts, Any]:
    return Coordinator(handler, {}, CoordinatorConfig(**settings))


@pytest.mark.cases(quick=1)
@pytest.mark.parametrize("place", ["flush", "durable"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: getattr(error, "__name__", "group"))
def test_everyone_is_answered_whatever_a_handler_raises(error: Callable[[], BaseException], place: str) -> None:
    loop = Loop()
    handler = InterruptedHandler(error, place)
    coordinator = loop.run(_coordinator(handler, max_pending_writes=2, max_buffered_writes=2))
    first = loop.run(coordinator.write(Upserts(a=1)))
    waiting = [
        loop.loop.create_task(outcome(call))
        for call in (first.durable(), coordinator.write(Upserts(b=2)), coordinator.write(Upserts(c=3)))
    ]
    loop.turn()
    assert [task for task in waiting if not task.done()] == [], "somebody is left waiting"
    assert isinstance(waiting[0].result(), PenstockError)
    assert isinstance(waiting[2].result(), PenstockError)
    assert coordinator.state is State.FAILED
    assert (error in loop.ended_by) == (error in ENDS_THE_PROGRAM), "what ends a program must still end it"
    assert loop.run(coordinator.retry()) == 2
    assert loop.run(coordinator.shutdown()) is None
    assert coordinator.watermarks == Watermarks(2, 2, 2)
    loop.close()
    gc.collect()
    assert loop.unhandled == []


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: getattr(error, "__name__", "group"))
def test_an_abort_after_an_interruption_answers_everyone_too(error: Callable[[], BaseException]) -> None:
    loop = Loop()
    coordinator = loop.run(_coordinator(InterruptedHandler(error, "flush")))
    loop.run(coordinator.write(Upserts(a=1)))
    flush = loop.loop.create_task(outcome(coordinator.flush()))
    while not coordinator._carriers:
        loop.turn(1)
    coordinator.abort()
    loop.turn()
    assert isinstance(flush.result(), OutcomeUnknown)
    coordinator.abort()
    loop.close()


@pytest.mark.parametrize("error", [*ENDS_THE_PROGRAM, Interruption, Wordless], ids=lambda error: error.__name__)
def test_everyone_is_answered_whatever_a_merge_for_a_flush_raises(error: type[BaseException]) -> None:
    class Moody(Upserts):
        willing = True

        def merge(self, later: Upserts) -> None:
            if not Moody.willing:
                raise error
            super().merge(later)

    loop = Loop()
    handler: PatientHandler[Upserts] = PatientHandler(Moody)
    coordinator = loop.run(_coordinator(handler))
    for number in range(2):
        loop.run(coordinator.write(Upserts(**{str(number): number})))
        coordinator.view()
    loop.run(coordinator.write(Upserts(last=2)))
    Moody.willing = False
    assert isinstance(loop.run(coordinator.flush()), PenstockError)
    assert (error in loop.ended_by) == (error in ENDS_THE_PROGRAM)
    Moody.willing = True
    retry = loop.loop.create_task(coordinator.retry())
    loop.turn()
    handler.calls[0].finish()
    loop.turn()
    assert retry.result() == 3
    assert coordinator.current.snapshot == {"0": 0, "1": 1, "last": 2}
    loop.close()


def test_a_transient_error_that_cannot_be_printed_is_retried_like_any_other() -> None:
    loop = Loop()
    handler = InterruptedHandler(lambda: WordlessOutage("x"), "flush")
    coordinator = loop.run(_coordinator(handler, retry_pause_seconds=1e-9, retry_pause_seconds_max=1e-9))
    assert loop.run(coordinator.write_durable(Upserts(a=1))).epoch == 1
    loop.close()


def test_an_observer_that_fails_leaves_nobody_waiting() -> None:
    """What is told comes after what is answered: numbers nobody gets are no reason to keep a caller."""

    class FailingObserver(LiveObserver):
        def count(self, *_: Any, **__: Any) -> None:
            raise ConnectionError("nobody listens")

        event = observe = count

    loop = Loop()

    async def made(place: str) -> Coordinator[Upserts, Any]:
        return Coordinator(InterruptedHandler(Wordless, place), {}, observer=FailingObserver())

    for place in ("flush", "durable", "nowhere"):
        coordinator = loop.run(made(place))
        handle = loop.run(coordinator.write(Upserts(a=1)))
        waiting = loop.loop.create_task(outcome(handle.durable()))
        loop.run(coordinator.flush())
        loop.turn()
        assert waiting.done()
        with suppress(ConnectionError):
            coordinator.abort()
    loop.close()
