"""An indexing job as commands see it, whichever engine runs it."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from penstock.indexing.job.summary import IndexingSummary
from penstock.indexing.job.writer import IndexWriter

__all__ = ["IndexingJob"]


class IndexingJob(Protocol):
    """From notifications in the queue to searchable vectors, exactly once. A context manager.

    It is the store's only writer while it is open, and one thread runs it; `interrupt` may be called by any other.
    """

    @property
    def writer(self) -> IndexWriter:
        """For what is changed while nothing runs: the settings of indexes, and collections that are given up."""
        ...

    @property
    def summary(self) -> IndexingSummary: ...

    def run_available(self) -> IndexingSummary:
        """Take what the queue holds now and what an earlier run left, and return when it is searchable and durable."""
        ...

    def follow(self) -> None:
        """Take what comes, until it is interrupted. A provider that stays away is waited for."""
        ...

    def interrupt(self) -> None:
        """End what runs, from any thread: `run_available` raises, and `follow` returns. The next job goes on.

        A round that is nearly done is waited for: its vectors are paid for. A longer one is given up, and repeated.
        """
        ...

    def close(self) -> None:
        """End after the round that is under way, and release the store."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
