"""What a fork must not take along: threads that do not live on in the child, and locks that do.

A store has threads, and a call to it behind a fork would wait for them forever: it is refused instead.
A directory can be opened anew in the child; the client of the cloud services cannot, once its parent has
used it, since it keeps one set of threads for the whole process. A file lock is the other way round: the
child inherits the open file and with it the lock, and would keep it when the parent dies.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.errors import Unsupported

__all__ = ["UNINHERITED", "Home", "Uninherited"]


class Home:
    """The process in which threads were started, or will be."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def check(self, what: str, remedy: str) -> None:
        """Raise `Unsupported` in any other process."""
        if os.getpid() != self._pid:
            raise Unsupported(f"{what} cannot be used here", "this process was forked from its own", remedy)


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
