"""Ctrl-C while modules are loaded: the process ends at once with 130.

A `KeyboardInterrupt` that is raised within an import is turned into other errors by the code it passes through, or
lost in a callback that may not raise. Nothing is at stake there: what a command has written is safe from a kill.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Final

__all__ = ["end_during_imports"]

_IMPORTING: Final = "<frozen importlib._bootstrap>"


def end_during_imports() -> None:
    """From now on. A caller that had Ctrl-C ignored wants it so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)


def _interrupted(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            os._exit(128 + number)
        frame = frame.f_back
    raise KeyboardInterrupt
