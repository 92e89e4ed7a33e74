"""A job that follows its queue on a thread of its own, while a test goes on."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from penstock.indexing import IndexingJob

__all__ = ["Following"]

# An end that takes longer is none.
_END_SECONDS_MAX: Final = 120.0


class Following:
    """Use it as a context manager: at its end the job is interrupted, and whatever ended it early is raised."""

    def __init__(self, job: IndexingJob) -> None:
        self._job = job
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._follow, name="penstock-following", daemon=True)

    @property
    def is_active(self) -> bool:
        return self._thread.is_alive()

    def wait(self) -> None:
        """Return when the job has ended by itself; what ended it is raised."""
        self._thread.join(_END_SECONDS_MAX)
        assert not self.is_active, "the job goes on"
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._job.interrupt()
        if kind is None:
            self.wait()

    def _follow(self) -> None:
        try:
            self._job.follow()
        except BaseException as error:  # noqa: BLE001 - raised where somebody waits for the end
            self._error = error
