"""What a process waits for, told on a signal: of one that stands still, the reason is all that counts.

A loop that runs tells its tasks and what each of them awaits; threads tell where they stand even if it does not.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

# A process under load answers late; one that does not answer at all says something, too.
ANSWER_SECONDS_MAX = 10.0
SHOWN_CHARACTERS = 6000


def answer_with_waits(path: Path, state: Callable[[], str]) -> None:
    """From now on this process writes to a file, on SIGUSR1, what its threads and its tasks are at."""
    written = path.open("a")
    loop = asyncio.get_running_loop()
    faulthandler.register(signal.SIGUSR2, file=written, all_threads=True)

    def tell() -> None:
        written.write(f"{state()}\n")
        for task in asyncio.all_tasks(loop):
            written.write(f"task {task.get_name()}: {' > '.join(_awaits(task))}\n")
        written.write("end of tasks\n")
        written.flush()

    loop.add_signal_handler(signal.SIGUSR1, tell)


def _awaits(task: asyncio.Task[object]) -> list[str]:
    """From the outermost coroutine to what it waits for in the end."""
    found = []
    awaited: object = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        name = getattr(awaited, "__qualname__", type(awaited).__name__)
        found.append(f"{name}:{frame.f_lineno}" if frame is not None else name)
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return found


def waits_told(pid: int, path: Path) -> str:
    """What a process says that it waits for, and how busy the machine is."""
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    if not path.exists():
        return f"{load}; it has not begun"
    os.kill(pid, signal.SIGUSR2)
    os.kill(pid, signal.SIGUSR1)
    end = time.monotonic() + ANSWER_SECONDS_MAX
    while "end of tasks" not in path.read_text() and time.monotonic() < end:
        time.sleep(0.05)
    return f"{load}\n{path.read_text()[-SHOWN_CHARACTERS:]}"
