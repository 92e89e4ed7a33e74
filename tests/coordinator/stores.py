"""Two small stores for the coordinator's tests: one whose writes overwrite, one whose writes append.

Both keep a source position beside the data, as every real store does. `PatientHandler` does nothing by
itself: a test decides when each flush lands, settles or fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from penstock.coordinator import Coordinator, CoordinatorConfig, Epochs, Flushed
from penstock.testing import Simulation, simulate

# Enough orders to meet every race of two or three tasks.
SEEDS = range(25)

ROW_BYTES = 10


class Upserts:
    """Rows by id; the last write of an id wins."""

    def __init__(self, position: int = 0, **rows: Any) -> None:
        self.rows: dict[str, Any] = rows
        self.position = position
        self.size_bytes = ROW_BYTES * len(rows)

    def merge(self, later: Upserts) -> None:
        self.rows.update(later.rows)
        self.position = max(self.position, later.position)

    def onto(self, state: Mapping[str, Any]) -> dict[str, Any]:
        return {**state, **self.rows}

    def __repr__(self) -> str:
        return f"Upserts({self.rows})"


class Samples:
    """Samples by series; writes add up in their order."""

    def __init__(self, position: int = 0, **series: Any) -> None:
        self.series: dict[str, list[Any]] = {name: [sample] for name, sample in series.items()}
        self.position = position
        self.size_bytes = ROW_BYTES * len(series)

    def merge(self, later: Samples) -> None:
        for name, samples in later.series.items():
            self.series.setdefault(name, []).extend(samples)
        self.position = max(self.position, later.position)

    def onto(self, state: Mapping[str, Any]) -> dict[str, Any]:
        names = {**state, **self.series}
        return {name: (*state.get(name, ()), *self.series.get(name, ())) for name in names}

    def __repr__(self) -> str:
        return f"Samples({self.series})"


class Applicable(Protocol):
    """A delta that knows what it makes of a state."""

    position: int

    @property
    def size_bytes(self) -> int: ...

    def merge(self, later: Any) -> None: ...

    def onto(self, state: Mapping[str, Any]) -> dict[str, Any]: ...


D = TypeVar("D", bound=Applicable)
State = Mapping[str, Any]


@dataclass
class Call(Generic[D]):
    """One flush that the handler was asked for; it waits until the test says what becomes of it."""

    delta: D
    snapshot: State
    epochs: Epochs
    _landing: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _settling: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def land(self) -> None:
        self._landing.set_result(None)

    def fail(self, error: BaseException) -> None:
        self._landing.set_exception(error)

    def settle(self) -> None:
        self._settling.set_result(None)

    def lose(self, error: BaseException) -> None:
        """It landed, and waiting for durability fails."""
        self._settling.set_exception(error)

    def finish(self) -> None:
        self.land()
        self.settle()

    @property
    def abandoned(self) -> bool:
        """Nobody waits for durability any more."""
        return self._settling.cancelled()

    async def landed(self) -> None:
        await self._landing

    async def settled(self) -> None:
        await self._settling


class PatientHandler(Generic[D]):
    """Answers only when told to. Two flushes at one time would fail the test."""

    def __init__(self, empty: Callable[[], D]) -> None:
        self.empty = empty
        self.calls: list[Call[D]] = []
        self._busy = False

    async def flush(self, delta: D, snapshot: State, epochs: Epochs) -> Flushed[State]:
        assert not self._busy, "the coordinator promised one flush at a time"
        call = Call(delta, snapshot, epochs)
        self.calls.append(call)
        self._busy = True
        try:
            await call.landed()
        finally:
            self._busy = False
        return Flushed(delta.onto(snapshot), call.settled)

    @property
    def ranges(self) -> list[tuple[int, int, int]]:
        """First and last epoch and the attempt of every call."""
        return [(call.epochs.first, call.epochs.last, call.epochs.attempt) for call in self.calls]


class WillingHandler(Generic[D]):
    """Lands and settles each flush after fixed times."""

    def __init__(self, empty: Callable[[], D], *, land_seconds: float = 0.01, settle_seconds: float = 0.1) -> None:
        self.empty = empty
        self.flushed: list[Epochs] = []
        self._land_seconds = land_seconds
        self._settle_seconds = settle_seconds

    async def flush(self, delta: D, snapshot: State, epochs: Epochs) -> Flushed[State]:
        self.flushed.append(epochs)
        await asyncio.sleep(self._land_seconds)
        return Flushed(delta.onto(snapshot), lambda: asyncio.sleep(self._settle_seconds))


class Bench:
    """One coordinator over a patient handler, in a simulated world."""

    def __init__(self, simulation: Simulation, **settings: Any) -> None:
        self.clock = simulation.clock
        self.handler: PatientHandler[Upserts] = PatientHandler(Upserts)
        self.coordinator: Coordinator[Upserts, State] = Coordinator(
            self.handler,
            {},
            CoordinatorConfig(**settings),
            clock=simulation.clock,
            entropy=simulation.entropy.fork("coordinator"),
        )

    async def quiet(self) -> None:
        """Let everything happen that can happen without time passing."""
        await self.clock.sleep(0.001)

    async def call(self, number: int) -> Call[Upserts]:
        """The `number`th flush the handler was asked for, from 1."""
        await self.quiet()
        assert len(self.handler.calls) >= number, f"{len(self.handler.calls)} flushes were begun, not {number}"
        return self.handler.calls[number - 1]

    async def write(self, count: int = 1, **rows: Any) -> None:
        for _ in range(count):
            await self.coordinator.write(Upserts(**rows or {"a": 1}))


def scenario(
    **settings: Any,
) -> Callable[[Callable[[Bench], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """A test that is run under many orders of events."""

    def wrap(test: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        async def main(simulation: Simulation) -> None:
            await test(Bench(simulation, **settings))

        def run() -> None:
            for seed in SEEDS:
                simulate(main, seed)

        run.__name__ = test.__name__
        run.__doc__ = test.__doc__
        return run

    return wrap


async def outcome(awaitable: Awaitable[Any]) -> Any:
    """What it returned, or the error it raised."""
    try:
        return await awaitable
    except Exception as error:  # noqa: BLE001 - the test asks which one
        return error
