"""Open files that a fork must not take along.

A child inherits each open file and with it the lock on it, and would keep the lock when its parent dies.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["UNINHERITED", "Uninherited"]


class Uninherited:
    """Open files that a forked child closes before it runs a line of its own."""

    def __init__(self) -> None:
        # Held across each fork, so that no descriptor is open and not yet in the set at that moment.
        # Reentrant, because a signal handler may fork while its own thread is in here.
        self._gate = threading.RLock()
        self._handles: set[int] = set()
        os.register_at_fork(
            before=self._gate.acquire, after_in_parent=self._gate.release, after_in_child=self._close_all
        )

    @contextmanager
    def opened(self, path: str, flags: int, mode: int = 0o600) -> Iterator[int]:
        with self._gate:
            handle = os.open(path, flags, mode)
            self._handles.add(handle)
        try:
            yield handle
        finally:
            with self._gate:
                self._handles.discard(handle)
                os.close(handle)

    def _close_all(self) -> None:
        for handle in self._handles:
            os.close(handle)
        self._handles.clear()
        self._gate.release()


# One for the process: a fork asks no store.
UNINHERITED: Final = Uninherited()
