"""Ends a process whose query holds more memory, or takes more time, than it may.

DuckDB's own limit does not count a value that one function makes, such as `repeat('x', 2000000000)`, and such a call
cannot be interrupted. Whoever answers one query in a process can end the process: this looks at it from a thread.
"""

from __future__ import annotations

import resource
import sys
import threading
from collections.abc import Callable
from math import inf
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import AtCapacity, Closed, DeadlineExceeded, PenstockError
from penstock.lake.sql_config import MIB, SqlConfig

__all__ = ["ProcessWatch", "resident_bytes"]

_SIZES: Final = Path("/proc/self/statm")
# Memory grows by some gigabytes a second at most, so the bound is passed by a few hundred megabytes.
_PERIOD_SECONDS: Final = 0.05
# For a query to end by itself when it is interrupted.
_GRACE_SECONDS: Final = 1.0
# What Arrow reads ahead, and what allocators keep.
_SLACK_BYTES: Final = 512 * MIB


def resident_bytes(sizes: BinaryIO | None = None) -> int:
    """The resident memory of this process, in bytes; its peak if the system does not report the current value.

    `sizes` is `/proc/self/statm`, opened by a process that may no longer open it.
    """
    if sizes is not None:
        sizes.seek(0)
        text = sizes.read()
    elif _SIZES.exists():
        text = _SIZES.read_bytes()
    else:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return int(text.split()[1]) * resource.getpagesize()


class ProcessWatch:
    """Watches this process while the context is open. `end` gets the reason, on a thread, and must not return."""

    def __init__(
        self,
        config: SqlConfig,
        end: Callable[[PenstockError], object],
        *,
        seconds_max: float = inf,
        resident: Callable[[], int] = resident_bytes,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._config, self._end, self._seconds_max = config, end, seconds_max
        self._resident, self._clock = resident, clock
        self._until = clock.monotonic() + seconds_max + _GRACE_SECONDS
        # An answer is held as rows and as what is sent or printed of them.
        self.bytes_max = resident() + config.memory_bytes + 3 * config.answer_bytes_max + _SLACK_BYTES
        self._over = threading.Event()
        self._is_hurried = False

    def hurry(self) -> None:
        """Nobody waits for the answer any more: the process ends soon, if the query does not."""
        self._is_hurried = True
        self._until = min(self._until, self._clock.monotonic() + _GRACE_SECONDS)

    def __enter__(self) -> Self:
        threading.Thread(target=self._look, name="penstock-sql-watch", daemon=True).start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._over.set()

    def excess(self) -> PenstockError | None:
        """Which bound the process is over."""
        held = self._resident()
        if held > self.bytes_max:
            return AtCapacity(
                "the query needs too much memory",
                f"its process holds {held / MIB:,.0f} MiB; memory_bytes = {self._config.memory_bytes:,} allows it"
                f" {self.bytes_max / MIB:,.0f}",
                "narrow it, or raise memory_bytes",
            )
        if self._clock.monotonic() <= self._until:
            return None
        if self._is_hurried:
            return Closed("the query's process was killed", "it was cancelled, and could not be interrupted")
        return DeadlineExceeded(
            "the query's process was killed",
            f"it took longer than {self._seconds_max:g} s, and could not be interrupted",
            "narrow its time range, or allow more with seconds_max",
        )

    def _look(self) -> None:
        while not self._over.wait(_PERIOD_SECONDS):
            if (excess := self.excess()) is not None and not self._over.is_set():
                self._end(excess)
                return
