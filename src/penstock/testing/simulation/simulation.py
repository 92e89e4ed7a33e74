"""Run a coroutine, and the processes it starts, in a world that one seed decides.

```python
async def main(simulation: Simulation) -> int:
    store = FaultyStore(MemoryStore(clock=simulation.clock), FaultPlan.harsh(), ...)
    writer = simulation.start("writer", write(store, simulation.clock))
    await simulation.clock.sleep(3)
    simulation.crash(writer)
    ...

simulate(main, seed=1234)
```
The same seed gives the same steps, times and result on every machine. Main's return is the end of
the world: whatever still runs is frozen, then destroyed.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from penstock.errors import InvalidInput
from penstock.testing.clock import SimulatedClock
from penstock.testing.entropy import SeededEntropy
from penstock.testing.process import Process
from penstock.testing.simulation.loop import STEPS_MAX, SimulatedLoop
from penstock.testing.storage.torn_disk import Hung

__all__ = ["Simulation", "inline", "simulate"]

T = TypeVar("T")


class Simulation:
    """The world as its main coroutine sees it: time, randomness, and processes to start and to crash."""

    def __init__(self, seed: int, loop: SimulatedLoop) -> None:
        self.seed = seed
        self.clock = SimulatedClock()
        self.entropy = SeededEntropy(seed)
        self._loop = loop

    @property
    def fingerprint(self) -> tuple[int, int, float]:
        """Steps taken, a digest of every choice between ready callbacks, the time: equal for equal runs."""
        return self._loop.steps, self._loop.fingerprint, self._loop.time()

    def start(self, name: str, main: Coroutine[Any, Any, Any]) -> Process:
        """A process that runs `main`. Wait for it with `join()`, which raises what it raised."""
        return Process(name, main)

    def crash(self, process: Process) -> None:
        """Kill it dead; see `penstock.testing.process` for what that means."""
        process.crash()


def simulate(
    main: Callable[[Simulation], Coroutine[Any, Any, T]],
    seed: int,
    *,
    steps_max: int = STEPS_MAX,
    stall_seconds_max: float = 0.0,
) -> T:
    """Run `main` under `seed` and return what it returns.

    Raises what it raises, `Deadlock` or `Livelock`; and, where main succeeded, the errors that tasks
    kept to themselves, since a failure nobody looked at is a failure all the same.
    """
    if asyncio._get_running_loop() is not None:
        raise InvalidInput("a simulation was started inside a running event loop", "it owns the thread's only loop")
    # Abstract to the type checker alone: what is missing is refused by name.
    loop = SimulatedLoop(seed, steps_max=steps_max, stall_seconds_max=stall_seconds_max)  # type: ignore[abstract]
    with _no_garbage_collection():
        try:
            result = loop.run_until_complete(main(Simulation(seed, loop)))
        finally:
            loop.close()
    if loop.unhandled:
        raise BaseExceptionGroup(f"nobody looked at these errors (seed {seed})", loop.unhandled)
    return result


async def inline(work: Callable[..., T], /, *args: Any) -> T:
    """Blocking work done at once, in one step: the `offload` of stores that would otherwise use threads.

    Work that hangs is never done, as in a thread that waits for a disk.
    """
    try:
        return work(*args)
    except Hung:
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """The collector runs finalizers at moments that depend on what ran before the simulation."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
