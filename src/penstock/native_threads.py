"""The end of a process whose native libraries keep threads of their own.

The clients of object stores answer from threads that Python knows nothing of. Such a thread still has a Python object
to let go of after the loop has its answer. If it comes to that while Python takes itself apart, the process is aborted:
a program that did its work and ended right after its last write would end with the code of a crash. So whoever loads
such a library asks for the threads to come to rest first:

    rest_native_threads_at_exit()
"""

from __future__ import annotations

import atexit
import os
import threading
from functools import cache
from pathlib import Path
from typing import Final

from penstock.clock import SYSTEM_CLOCK, Deadline

__all__ = ["rest_native_threads_at_exit"]

_THREADS: Final = Path("/proc/self/task")
# So often in a row must all of them be seen asleep: between two looks, each may have what it was waiting for.
_LOOKS: Final = 3
_PAUSE_SECONDS: Final = 0.001
# Of a machine so busy that a thread does not get its turn, or of a library whose threads never sleep.
_PATIENCE_SECONDS: Final = 1.0
# Where the system does not show its threads.
_BLIND_SECONDS: Final = 0.02


@cache
def rest_native_threads_at_exit() -> None:
    """Let native threads finish before Python ends; asking again changes nothing.

    What is registered first is called last, so functions that a program registers may still use its stores.
    """
    atexit.register(_rest)


def _rest() -> None:
    # Waiting is what lets go of the interpreter's lock, which those threads wait for.
    pause = threading.Event()
    if not _THREADS.is_dir():
        pause.wait(_BLIND_SECONDS)
        return
    patience = Deadline(SYSTEM_CLOCK, _PATIENCE_SECONDS)
    looks = 0
    while looks < _LOOKS and not patience.passed:
        pause.wait(_PAUSE_SECONDS)
        looks = looks + 1 if _all_asleep() else 0


def _all_asleep() -> bool:
    known = {thread.native_id for thread in threading.enumerate()}
    return all(_is_asleep(entry) for entry in os.scandir(_THREADS) if int(entry.name) not in known)


def _is_asleep(thread: os.DirEntry[str]) -> bool:
    try:
        said = Path(thread.path, "stat").read_bytes()
    except OSError:
        # It ended meanwhile.
        return True
    # Its state stands behind its name, which is in brackets and may hold any character.
    return said.rpartition(b")")[2].split()[0] != b"R"
