"""Stores have threads, and threads do not live on behind a fork: a call there would wait forever.

Such a call is refused instead. A directory can be opened anew in the child; the client of the cloud
services cannot, once its parent has used it, since it keeps one set of threads for the whole process.
"""

from __future__ import annotations

import os

from penstock.errors import Unsupported

__all__ = ["Home"]


class Home:
    """The process in which threads were started, or will be."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def check(self, what: str, remedy: str) -> None:
        """Raise `Unsupported` in any other process."""
        if os.getpid() != self._pid:
            raise Unsupported(f"{what} cannot be used here", "this process was forked from its own", remedy)
