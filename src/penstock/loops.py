"""An event loop on a thread of its own, for callers that have none. It also runs between calls, for what works there.

Every room's synchronous door stands on this one. The thread does not live on behind a fork, so a forked process is
refused instead of left waiting; `Home` is that check, for whoever else keeps threads. `Threads` is the other way
round: blocking calls for those who have a loop that must not wait.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from penstock.errors import Closed, Unsupported

__all__ = ["Home", "LoopThread", "Offload", "Threads"]

T = TypeVar("T")


class Home:
    """The process in which threads were started, or will be."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def check(self, what: str, remedy: str) -> None:
        """Raise `Unsupported` in any other process."""
        if os.getpid() != self._pid:
            raise Unsupported(f"{what} cannot be used here", "this process was forked from its own", remedy)


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
                "this is its own thread, which would wait for itself",
                "hand the call to another thread",
            )

    def _is_closed(self) -> Closed:
        return Closed(f"the door {self._thread.name} is closed", "close() was called", "make a new one")


class Offload(Protocol):
    """Runs a blocking call where it does not hold up the event loop."""

    def __call__(self, work: Callable[..., T], /, *args: Any) -> Awaitable[T]: ...


class Threads:
    """Blocking calls on a few threads of their own, so that a slow disk never starves the loop's executor."""

    def __init__(self, count: int, name: str, what: str) -> None:
        """`what` is named where a call comes too late, or in a forked process."""
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._what = what
        self._home = Home()
        self._closed = False

    def __call__(self, work: Callable[..., T], /, *args: Any) -> Awaitable[T]:
        if self._closed:
            raise Closed(f"{self._what} was closed", "a call came after close()", "open it again")
        self._home.check(self._what, "open it again")
        return asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    def close(self) -> None:
        """Take no more work, and wait for what is under way."""
        self._closed = True
        self._pool.shutdown()
