"""Processes inside one simulation: groups of tasks that can be killed together, as `kill -9` kills.

A task belongs to the process in whose context it was created, and so does everything it starts, since
asyncio hands the context on. A crash does not cancel: cancelling would run `except` and `finally`
blocks, and those would tidy up, release and report, which a killed process never does. Instead the
simulated loop drops every step and timer of a dead process unrun, so the coroutines stay frozen at
their last `await` until the simulation is over. What a process had already handed to a store or a
disk is not its own any more: `FaultyStore` carries requests outside of all processes, and decides by
the seed whether those of a dead process still land.

Frozen coroutines are destroyed when the loop closes, after the simulation's result is known. Python
runs their `finally` blocks then; the loop is closed and takes no step, so nothing that waits can follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final

from penstock.errors import InvalidInput

__all__ = ["CURRENT_PROCESS", "Process", "current_process", "outside"]


class Process:
    """One coroutine and all that it starts, until it returns, fails or is crashed.

    States: running (`alive`) → ended (its coroutine returned or raised) or crashed. Both ends freeze
    whatever else it had started: a process that has exited runs nothing in the background.
    """

    def __init__(self, name: str, main: Coroutine[Any, Any, Any]) -> None:
        self.name = name
        self.alive = True
        self.crashed = False
        self._gone = asyncio.Event()
        context = copy_context()
        context.run(CURRENT_PROCESS.set, self)
        self._task = asyncio.get_running_loop().create_task(main, name=name, context=context)
        self._task.add_done_callback(self._end, context=outside())

    def crash(self) -> None:
        """Stop dead. From inside the process itself, this takes effect at its next await."""
        if self.alive:
            self.crashed = True
            self._stop()

    async def join(self) -> Any:
        """Wait for the end, and return or raise what the coroutine did; a crashed process gives None."""
        if current_process() is self:
            raise InvalidInput(f"process {self.name} cannot wait for its own end", "it would wait for ever")
        await self._gone.wait()
        return None if self.crashed else self._task.result()

    def _end(self, _task: asyncio.Task[Any]) -> None:
        if self.alive:
            self._stop()

    def _stop(self) -> None:
        self.alive = False
        self._gone.set()

    def __repr__(self) -> str:
        state = "alive" if self.alive else "crashed" if self.crashed else "ended"
        return f"<Process {self.name} {state}>"


# The loop asks the context of every step for its process.
CURRENT_PROCESS: Final[ContextVar[Process | None]] = ContextVar("penstock_testing_process", default=None)


def current_process() -> Process | None:
    """The simulated process that runs this line; None outside of processes."""
    return CURRENT_PROCESS.get()


def outside() -> Context:
    """The caller's context without its process: what runs in it outlives a crash, as a network does."""
    context = copy_context()
    context.run(CURRENT_PROCESS.set, None)
    return context
