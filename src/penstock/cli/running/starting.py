"""Starts Spark on a thread of its own, so that a command that is asked to end meanwhile ends at once.

Starting takes seconds, and nothing is at stake in them: whatever is to be done lies in the queue. On the main thread,
Spark would also put in a handler of its own for Ctrl-C.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from penstock.errors import Closed

if TYPE_CHECKING:
    from penstock.cli.running.stop import Stop

__all__ = ["started"]

# A start whose Java process is gone fails at once.
_GIVEN_UP_SECONDS_MAX: Final = 2.0

_T = TypeVar("_T")


def started(start: Callable[[], _T], stop: Stop, give_up: Callable[[], bool]) -> _T:
    """What `start` gives. `Closed` as soon as `stop` is requested.

    Then `give_up` is called, and says whether `start` will fail soon: only then is its end worth waiting for.
    """
    start_thread = _Start(start)
    stop.calls(start_thread.over.set)
    try:
        start_thread.over.wait()
    finally:
        stop.calls(lambda: None)
    if stop.requested:
        if give_up():
            start_thread.join(_GIVEN_UP_SECONDS_MAX)
        raise Closed("Spark was not started", "the command was interrupted", "run it again")
    return start_thread.result()


class _Start(Generic[_T]):
    """A call on a daemon thread; `over` is set at its end."""

    def __init__(self, call: Callable[[], _T]) -> None:
        self.over = threading.Event()
        self._call = call
        self._results: list[_T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-spark-start", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def result(self) -> _T:
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            self._error = error
        finally:
            self.over.set()
