"""What a forked process gets for an answer."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from penstock.errors import Unsupported


def in_a_fork(ask: Callable[[], Any]) -> str:
    """What a forked process gets for an answer; its alarm ends one that waits forever."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            os.write(writing, repr(ask()).encode())
        except Unsupported as refusal:
            os.write(writing, refusal.why.encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as answer:
        return answer.read().decode()
