"""Ctrl-C and SIGTERM: the first one ends a command in good order, a second one at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Final, Self

from penstock.clock import SYSTEM_CLOCK, Clock

__all__ = ["ENDING", "Stop", "close_quietly"]

# Printed at the first signal.
ENDING: Final = "ending: work in progress is finished or left to the next run; interrupt again to end at once"
_SHOW_CURSOR: Final = "\x1b[?25h"
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
# A supervisor may signal a process and then its group, which the process belongs to: that is one request.
_SAME_REQUEST_SECONDS: Final = 1.0
# A terminal prints a line at once; one that is paused (Ctrl-S) does not delay the end.
_ANSWER_SECONDS_MAX: Final = 1.0


class Stop:
    """Whether somebody wants the command to end. The first signal ends it in good order, a second one at once.

    `answer` is called at the first one, before anything is ended: whoever asks sees that it was heard.
    """

    def __init__(self, answer: Callable[[], None] = lambda: None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.signal: int | None = None
        self._answer = answer
        self._clock = clock
        self._asked_at = 0.0
        self._end: Callable[[], None] = lambda: None
        self._answered = threading.Event()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        self.listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def requested(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """Of a command that was not done yet, as shells count it."""
        return 0 if self.signal is None else 128 + self.signal

    def listen(self) -> None:
        """Also after whatever puts in handlers of its own."""
        for number in _SIGNALS:
            signal.signal(number, self._handle)

    def await_answer(self) -> None:
        """Let the answer to a request be printed before what follows from it."""
        if self.requested:
            self._answered.wait(_ANSWER_SECONDS_MAX)

    def calls(self, end: Callable[[], None]) -> None:
        """What ends the work; called at once if somebody has asked before."""
        self._end = end
        if self.requested:
            end()

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        now = self._clock.monotonic()
        if self.requested:
            if now - self._asked_at >= _SAME_REQUEST_SECONDS:
                self._leave(number)
            return
        self.signal, self._asked_at = number, now
        # A thread of its own: the main one may be in the middle of a call to Spark.
        threading.Thread(target=self._ended, name="penstock-stop", daemon=True).start()

    def _ended(self) -> None:
        # Whoever reads may be gone: it ends all the same.
        with suppress(Exception):
            self._answer()
        self._answered.set()
        # Spark may have got the same signal, and no longer answer: then there is nothing left to end.
        with suppress(Exception):
            self._end()

    @staticmethod
    def _leave(number: int) -> None:
        """At once: unwinding would wait for Spark, and print at length that it did not answer."""
        with suppress(Exception):
            # A bar may have hidden the cursor.
            sys.stdout.write(_SHOW_CURSOR if sys.stdout.isatty() else "")
            sys.stdout.flush()
        os._exit(128 + number)


def close_quietly(close: Callable[[], None], stop: Stop) -> None:
    """What was asked to end may be gone already; what is durable is so without it."""
    try:
        close()
    except Exception:
        if not stop.requested:
            raise
