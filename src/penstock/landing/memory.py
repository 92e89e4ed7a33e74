"""The memory pool of a process that lands telemetry.

A task makes and drops columns of some hundred megabytes. Arrow's default pool (mimalloc) gives such pieces back to the
system each time and takes them anew, which costs half of a task's processor time in page faults; jemalloc keeps them for
a while. Called by commands and by Spark's workers, whose process is ours; never for a program that imports this.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache

import pyarrow as pa

__all__ = ["settle_memory"]


@cache
def settle_memory() -> None:
    """Use the pool that suits large columns, where this build of Arrow has it."""
    with suppress(NotImplementedError):
        pa.set_memory_pool(pa.jemalloc_memory_pool())
