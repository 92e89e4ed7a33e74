"""An event loop on a thread of its own, for callers that have none. It also runs between calls, for what works there.

Every room's synchronous door stands on this one. The thread does not live on behind a fork, so a forked process is
refused instead of left waiting; `Home` is that check, for whoever else keeps threads. `Threads` is the other way
round: blocking calls for those who have a loop that must not wait.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from penstock.errors import Closed, Unsupported

__all__ = ["Home", "LoopThread", "Offload", "Threads"]

T = TypeVar("T")


class Home:
    """The process in which threads were started, or will be."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        return os.getpid() == self._pid

    def check(self, what: str, remedy: str) -> None:
        """Raise `Unsupported` in any other process."""
        if os.getpid() != self._pid:
            raise Unsupported(f"{what} cannot be used here", "this process was forked after it was opened", remedy)


class LoopThread:
    """`run` blocks until the work is done, and may be called from any other thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._home = Home()
        # Held while a call is handed over: none is taken once the loop began to end, and all that were taken are ended.
        self._handing_over = threading.Lock()
        self.closed = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns or raises; `Closed` if the loop is closed before it is done."""
        try:
            self.check_home()
            self._check_other_thread()
            with self._handing_over:
                self._check_open()
                waiting = asyncio.run_coroutine_threadsafe(work, self._loop)
        except BaseException:
            work.close()
            raise
        try:
            return waiting.result()
        except CancelledError as error:
            if self.closed:
                raise self._is_closed() from error
            raise
        except BaseException:
            # An interrupt of the waiting thread, such as Ctrl-C, ends the call as well. Else this does nothing.
            waiting.cancel()
            raise

    def close(self) -> None:
        """End the calls under way, the loop, its helpers and its thread.

        `Unsupported` in a forked process, which has none of them.
        """
        self.check_home()
        self._check_other_thread()
        with self._handing_over:
            self._check_open()
            self.closed = True
            ending = asyncio.run_coroutine_threadsafe(self._wind_up(), self._loop)
        try:
            ending.result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def check_home(self) -> None:
        """Raise `Unsupported` in a process that was forked from the one this thread runs in."""
        self._home.check(f"the door {self._thread.name}", "make a new one in this process")

    async def _wind_up(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_default_executor()

    def _check_open(self) -> None:
        if self.closed:
            raise self._is_closed()

    def _check_other_thread(self) -> None:
        """Its own thread would wait for itself, for ever: a callback that runs there must not call back."""
        if threading.current_thread() is self._thread:
            raise Unsupported(
                f"the door {self._thread.name} cannot be used here",
                "it was called on its own thread, which would block itself",
                "hand the call to another thread",
            )

    def _is_closed(self) -> Closed:
        return Closed(f"the door {self._thread.name} is closed", "close() was called", "make a new one")


class Offload(Protocol):
    """Runs a blocking call where it does not hold up the event loop."""

    def __call__(self, work: Callable[..., T], /, *args: Any) -> Awaitable[T]: ...


class Threads:
    """Blocking calls on a few threads of their own, so that a slow disk never starves the loop's executor.

    Calls begin in the order in which they were made. One costs half of what it does in the standard library's executor,
    whose futures are made for threads that wait; here a loop does.
    """

    def __init__(self, count: int, name: str, what: str) -> None:
        """`what` is named where a call comes too late, or in a forked process."""
        self._count = count
        self._name = name
        self._what = what
        self._home = Home()
        self._closed = False
        # Held while a call is handed over: all that were taken are ahead of the end.
        self._gate = threading.Lock()
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        # One for each thread that waits for a call.
        self._idle: list[None] = []
        self._threads: list[threading.Thread] = []
        _OPEN.add(self)
        # Threads know nothing of this object: whoever forgets to close it leaves none behind.
        weakref.finalize(self, self._calls.put, None).atexit = False

    def __call__(self, work: Callable[..., T], /, *args: Any) -> Awaitable[T]:
        self._home.check(self._what, "open it again")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        with self._gate:
            if self._closed:
                raise Closed(f"{self._what} was closed", "a call came after close()", "open it again")
            self._calls.put((loop, answer, work, args))
            try:
                self._idle.pop()
            except IndexError:
                self._start()
        return answer

    def close(self) -> None:
        """Take no more work, and wait for what is under way. A forked process has nothing to wait for."""
        if not self._home.is_here:
            return
        with self._gate:
            self._closed = True
            self._calls.put(None)
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        if len(self._threads) < self._count:
            name = f"{self._name}_{len(self._threads)}"
            # A daemon, for `_close_all` ends it: the interpreter would wait for any other before it calls that.
            thread = threading.Thread(target=_serve, args=(self._calls, self._idle), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)


_Call: TypeAlias = tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]
_OPEN: Final[weakref.WeakSet[Threads]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """A thread that is still in a native library when Python takes itself apart would abort the process."""
    for threads in list(_OPEN):
        threads.close()


def _serve(calls: SimpleQueue[_Call | None], idle: list[None]) -> None:
    """One thread of `Threads`."""
    while (call := calls.get()) is not None:
        _answer(idle, *call)
        # Nothing of a call stays while the thread waits for the next.
        del call
    # For the next thread.
    calls.put(None)


def _answer(
    idle: list[None],
    loop: asyncio.AbstractEventLoop,
    answer: asyncio.Future[Any],
    work: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    value: Any = None
    failure: BaseException | None = None
    try:
        if not answer.cancelled():
            value = work(*args)
    except BaseException as error:  # noqa: BLE001  whatever it is, it is the caller's
        failure = error
    # Ahead of the answer: whoever gets it may call again at once, and needs no other thread for that.
    idle.append(None)
    # A loop that is closed has nobody left who waits.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_settle, answer, value, failure)
    # A failure knows this frame: it must not know the failure.
    del answer, failure


def _settle(answer: asyncio.Future[Any], value: Any, failure: BaseException | None) -> None:
    if answer.done():
        return
    if failure is None:
        answer.set_result(value)
    elif isinstance(failure, StopIteration):
        # No future takes one.
        answer.set_exception(RuntimeError("a call ended with StopIteration"))
    else:
        answer.set_exception(failure)
