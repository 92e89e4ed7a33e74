"""The vector store for callers that have no event loop: Spark calls back on threads of its own."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.loops import LoopThread
from penstock.observability import SILENT, Observer
from penstock.vector import VectorConfig, VectorStore

__all__ = ["StoreDoor"]

T = TypeVar("T")


class StoreDoor:
    """Opens the store as its writer on a loop in a thread of its own; `run` blocks until the work is done."""

    def __init__(
        self,
        url: str,
        path: str,
        options: dict[str, Any],
        config: VectorConfig | None = None,
        *,
        observer: Observer = SILENT,
    ) -> None:
        self._thread = LoopThread("penstock-indexing")
        try:
            self.store: VectorStore = self.run(VectorStore.open(url, path, config, observer=observer, **options))
        except BaseException:
            self._thread.close()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(work)

    def close(self) -> None:
        """Flush and close the store; raises what that raises. Idempotent."""
        if self._thread.closed:
            return
        self._thread.check_home()
        try:
            self.run(self.store.close())
        finally:
            self._thread.close()
