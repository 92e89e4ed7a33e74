"""Keeps Spark's Python workers from looking through their own libraries after every task.

A worker collects garbage whenever a task ends, and walks all objects that its imports left: some sixty milliseconds of
processor time, as much as a small task takes in all. What is there before the first task of a stage stays for good, and
is put aside.
"""

from __future__ import annotations

import gc
import sys
from functools import cache

__all__ = ["settle_worker"]


@cache
def settle_worker(stage: str) -> None:
    """Called by every task of a stage before it makes anything; the first in a worker does something."""
    if not _is_task():
        # Somebody else's process, whose garbage is its own affair.
        return
    # Garbage that is put aside is never collected.
    gc.collect()
    gc.freeze()


def _is_task() -> bool:
    """Whether Spark runs this. Where it does, pyspark is loaded; elsewhere it need not even be installed."""
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.TaskContext.get() is not None
