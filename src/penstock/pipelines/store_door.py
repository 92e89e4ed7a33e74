"""The vector store for callers that have no event loop: Spark calls back on threads of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.errors import Closed
from penstock.vector import VectorStore

__all__ = ["StoreDoor"]

T = TypeVar("T")


class StoreDoor:
    """Opens the store as its writer on a loop in a thread of its own; `run` blocks until the work is done."""

    def __init__(self, url: str, path: str, options: dict[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-indexing", daemon=True)
        self._thread.start()
        self._closed = False
        try:
            self.store: VectorStore = self.run(VectorStore.open(url, path, **options))
        except BaseException:
            self._end()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            work.close()
            raise Closed("the indexing job is closed", "close() was called", "make a new one")
        waiting = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return waiting.result()
        except BaseException:
            # An interrupt of the waiting thread ends the call as well. Else this does nothing.
            waiting.cancel()
            raise

    def close(self) -> None:
        """Flush and close the store; raises what that raises. Idempotent."""
        if self._closed:
            return
        try:
            self.run(self.store.close())
        finally:
            self._end()

    def _end(self) -> None:
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
