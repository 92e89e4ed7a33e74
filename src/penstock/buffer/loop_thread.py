"""An event loop on a thread of its own, for callers that have none. It also runs between calls, for what works there.

The thread does not live on behind a fork, so a forked process is refused instead of left waiting.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.errors import Closed
from penstock.objects.fork import Home

__all__ = ["LoopThread"]

T = TypeVar("T")


class LoopThread:
    """`run` blocks until the work is done, and may be called from any other thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._home = Home()
        self.closed = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            self._check_usable()
        except BaseException:
            work.close()
            raise
        waiting = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return waiting.result()
        except BaseException:
            # An interrupt of the waiting thread, such as Ctrl-C, ends the call as well. Else this does nothing.
            waiting.cancel()
            raise

    def close(self) -> None:
        """End the loop, its helpers and its thread. `Unsupported` in a forked process, which has none of them."""
        self.run(self._loop.shutdown_default_executor())
        self.closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def check_home(self) -> None:
        """Raise `Unsupported` in a process that was forked from the one this thread runs in."""
        self._home.check(f"the door {self._thread.name}", "make a new one in this process")

    def _check_usable(self) -> None:
        self.check_home()
        if self.closed:
            raise Closed(f"the door {self._thread.name} is closed", "close() was called", "make a new one")
