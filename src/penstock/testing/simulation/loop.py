"""An asyncio event loop that owns time and order: one seed decides every interleaving.

Of all callbacks that are ready, the seed picks the next one; when none is ready, virtual time jumps to
the next timer. So an hour of back-off passes in microseconds, and a failing order comes back with its
seed. Tasks, futures, locks, queues, timeouts, `gather` and `TaskGroup` work as ever; threads, sockets,
signals and subprocesses are refused, because no seed decides what they do.

Asyncio promises to run callbacks in the order in which they were registered. This loop breaks that
promise on purpose: code that is right only by that order is one innocent `await` away from being wrong.
Code under it must not let `id()` or `hash()` decide an order, as iteration over a set of plain objects
does (sets of tasks are fine: tasks hash by number here).
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import random
import sys
import threading
from asyncio.events import _set_running_loop
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from typing import Any, Final, TypeAlias, TypeVar, TypeVarTuple

from penstock.errors import PenstockError
from penstock.testing.process import CURRENT_PROCESS, Process
from penstock.testing.simulation.refusals import refuse, refusing_the_outside

__all__ = ["STEPS_MAX", "Deadlock", "Livelock", "SimulatedLoop"]

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
_Coroutine: TypeAlias = Coroutine[Any, Any, T] | Generator[Any, None, T]

# A seed of a large workload takes tens of thousands of steps; a million means that it never ends.
STEPS_MAX: Final = 1_000_000

# One jump in eight stalls: often enough to meet every race of a workload within a few seeds.
_STALL_CHANCE: Final = 0.125
# Of one task: more coroutines and `finally` blocks than wait for each other anywhere.
_AWAITS_BURIED_MAX: Final = 100


class Deadlock(PenstockError):
    """Nothing is ready, no timer is set, and the main coroutine still waits."""


class Livelock(PenstockError):
    """The step limit is reached: tasks go on waking each other without an end."""


@refusing_the_outside
class SimulatedLoop(asyncio.AbstractEventLoop):
    """Runs one coroutine, and everything it starts, in the order its seed decides.

    With `stall_seconds_max`, the machine stalls now and then for up to so long, so that timers of
    different moments come due together and race each other; without it, timers fire to the second.
    """

    def __init__(self, seed: int | str, *, steps_max: int = STEPS_MAX, stall_seconds_max: float = 0.0) -> None:
        self.steps = 0
        self.fingerprint = 0
        self.unhandled: list[BaseException] = []
        self._random = random.Random(f"{seed}/order")
        self._steps_max = steps_max
        self._stall_seconds_max = stall_seconds_max
        self._now = 0.0
        self._ready: list[_Step] = []
        self._timers: list[tuple[float, int, _Step]] = []
        self._timer_count = 0
        # Strong references: a task that nobody holds must not vanish at the whim of the garbage collector,
        # and a crashed one must stay frozen instead of being torn down.
        self._tasks: list[_Task[Any]] = []
        self._task_count = 0
        self._prune_at = 256
        self._thread = threading.get_ident()
        self._running = False
        self._closed = False

    # Time and order -------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def stall(self, seconds: float) -> None:
        """Let time pass while nothing runs, as in a process that is stopped: what was due meanwhile comes due together."""
        self._now += seconds

    def call_soon(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.TimerHandle:
        step = _Step(callback, args, copy_context() if context is None else context, self._now)
        # While the loop is being closed, `finally` blocks of frozen coroutines may still call this.
        if not self._closed:
            self._ready.append(step)
        return step

    def call_later(
        self, delay: float, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.TimerHandle:
        step = _Step(callback, args, copy_context() if context is None else context, when)
        if not self._closed:
            self._timer_count += 1
            heapq.heappush(self._timers, (when, self._timer_count, step))
        return step

    def call_soon_threadsafe(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if threading.get_ident() != self._thread:
            refuse("call_soon_threadsafe", "another thread runs in an order of its own")
        return self.call_soon(callback, *args, context=context)

    # Tasks and futures ----------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: _Coroutine[T], *, name: object = None, context: Context | None = None, **_: Any
    ) -> asyncio.Task[T]:
        if len(self._tasks) >= self._prune_at:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._prune_at = max(256, 2 * len(self._tasks))
        self._task_count += 1
        task = _Task(coro, self._task_count, self, name, copy_context() if context is None else context)
        self._tasks.append(task)
        return task

    # Running --------------------------------------------------------------------------------------

    def run_until_complete(self, future: _Coroutine[T] | asyncio.Future[T]) -> T:  # type: ignore[override]
        """Run until this one is done. What else is still pending is then left where it stands."""
        main = future if isinstance(future, asyncio.Future) else self.create_task(future, name="main")
        with self._as_the_running_loop():
            self._run(main)
        return main.result()

    def close(self) -> None:
        """Take no further step, then destroy what is still pending. Idempotent."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        # As the running loop, so that a task which a `finally` block starts comes here too, and is buried in turn.
        with self._as_the_running_loop():
            while self._tasks:
                self._destroy(self._tasks.pop())

    def _destroy(self, task: _Task[Any]) -> None:
        if not task.done():
            task.bury()
        elif task._log_traceback and (task.process is None or not task.process.crashed):
            self.unhandled.append(task.exception() or RuntimeError(f"{task!r} kept its error to itself"))

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """Nothing: asyncio's debug mode measures real time."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what asyncio would only log; `simulate` fails with it at the end."""
        # A closing loop destroys frozen coroutines, and with them answers that nobody was left to hear.
        if not self._closed:
            self.unhandled.append(context.get("exception") or RuntimeError(context["message"]))

    def pending(self) -> list[str]:
        """One line for each task that waits: its name, process and place. Frozen tasks are left out."""
        return [task.place() for task in self._tasks if not task.done() and _lives(task.process)]

    def _run(self, main: asyncio.Future[Any]) -> None:
        ready, pick = self._ready, self._random.random
        while not main.done():
            count = len(ready)
            if count == 0:
                self._jump()
                continue
            step = ready.pop()
            if count > 1:
                index = int(pick() * count)
                if index < count - 1:
                    ready[index], step = step, ready[index]
                self.fingerprint = (self.fingerprint * 1_000_003 + index) & 0xFFFF_FFFF_FFFF_FFFF
            if step.callback is not None and _lives(step.context.get(CURRENT_PROCESS)):
                self.steps += 1
                if self.steps > self._steps_max:
                    raise self._livelock()
                step.context.run(step.callback, *step.args)

    def _jump(self) -> None:
        """Move time to the next timer that anybody still waits for, and make all that are then due ready."""
        timers = self._timers
        while timers and not self._take(heapq.heappop(timers)[2]):
            pass
        if not self._ready:
            raise self._deadlock()
        self._now = max(self._now, self._ready[0].at)
        if self._stall_seconds_max and self._random.random() < _STALL_CHANCE:
            self._now += self._stall_seconds_max * self._random.random()
        while timers and timers[0][0] <= self._now:
            self._take(heapq.heappop(timers)[2])

    def _take(self, step: _Step) -> bool:
        wanted = step.callback is not None and _lives(step.context.get(CURRENT_PROCESS))
        if wanted:
            self._ready.append(step)
        return wanted

    def _deadlock(self) -> Deadlock:
        return Deadlock(
            f"the simulation stands still at {self._now:g} s",
            "no callback is ready and no timer is set; waiting:" + "".join(f"\n  {line}" for line in self.pending()),
            "something was never released, or waits for a process that has crashed",
        )

    def _livelock(self) -> Livelock:
        return Livelock(
            f"the simulation took {self._steps_max} steps without an end, until {self._now:g} s",
            "tasks go on waking; pending:" + "".join(f"\n  {line}" for line in self.pending()),
            "bound the retries, or give a large workload a higher `steps_max`",
        )

    @contextmanager
    def _as_the_running_loop(self) -> Generator[None, None, None]:
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=lambda _: None, finalizer=self._finish_generator)
        _set_running_loop(self)
        self._running = True
        try:
            yield
        finally:
            self._running = False
            _set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def _finish_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        # A generator dropped half-way closes itself in a task, as on asyncio's own loop.
        if not self._closed:
            self.create_task(generator.aclose())


class _Step(asyncio.TimerHandle):
    """A callback that waits for its turn. In name asyncio's handle; without its debug bookkeeping, which
    would cost a third of a simulation's time. A cancelled step has no callback."""

    __slots__ = ("args", "at", "callback", "context")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context, at: float) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context
        self.at = at

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.at

    def __repr__(self) -> str:
        return f"<step {self.callback!r} at {self.at:g} s>"

    __hash__ = object.__hash__
    __eq__ = object.__eq__


class _Task(asyncio.Task[T]):
    """A task that knows its process and hashes by its number, so that a set of tasks has one order."""

    def __init__(self, coro: _Coroutine[T], number: int, loop: SimulatedLoop, name: object, context: Context) -> None:
        self.number = number
        self.process = context.get(CURRENT_PROCESS)
        super().__init__(coro, loop=loop, name=str(name or f"task-{number}"), context=context)

    def __hash__(self) -> int:
        return self.number

    def place(self) -> str:
        """Where it waits, for a report."""
        inside = f" of {self.process.name}" if self.process and self.process.name != self.get_name() else ""
        frames = self.get_stack()
        where = f"{frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else "not started"
        return f"{self.get_name()}{inside} at {where}"

    def bury(self) -> None:
        """Destroy a task that will never be done. Its `finally` blocks run; whatever they try is lost."""
        self._log_destroy_pending = False
        coroutine: Any = self.get_coro()
        for _ in range(_AWAITS_BURIED_MAX):
            if not _is_suspended(coroutine):
                break
            # From the innermost one out: one that is left behind in an `await` would say so when it is collected. A
            # block that awaits refuses to be closed, and is closed again where it waits now. Whatever else is raised,
            # nobody is left to be told.
            with suppress(BaseException):
                _innermost(coroutine).close()
        with suppress(BaseException):
            # One that is not made by `async def`, such as a step of a generator.
            coroutine.close()


def _innermost(coroutine: Any) -> Any:
    """The coroutine that a chain of `await` ends in, among those that have not ended."""
    while _is_suspended(coroutine.cr_await):
        coroutine = coroutine.cr_await
    return coroutine


def _is_suspended(awaited: Any) -> bool:
    return inspect.iscoroutine(awaited) and awaited.cr_frame is not None


def _lives(process: Process | None) -> bool:
    return process is None or process.alive
