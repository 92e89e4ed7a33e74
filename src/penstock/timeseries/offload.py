"""Work that is too much for the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

__all__ = ["offload"]

P = ParamSpec("P")
R = TypeVar("R")

# Work on fewer samples than this is done before a thread would have started.
_OFFLOAD_SAMPLES: Final = 2048


async def offload(samples: int, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Do pure work on so many samples, beside the event loop if it is much."""
    if samples < _OFFLOAD_SAMPLES:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
