"""Work that is too much for the event loop, and how many threads the native kernels may use for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

import faiss

__all__ = ["OneThread", "kernel_threads", "offload"]

P = ParamSpec("P")
R = TypeVar("R")

# Work on fewer rows than this is done before a thread would have started.
_OFFLOAD_ROWS: Final = 512


async def offload(rows: int, threads: int, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Do pure work on so many rows, beside the event loop if it is much."""

    def run() -> R:
        kernel_threads(threads)
        return work(*args, **kwargs)

    return run() if rows < _OFFLOAD_ROWS else await asyncio.to_thread(run)


def kernel_threads(threads: int) -> None:
    """Let kernels called from this thread use so many; zero leaves the choice to the OpenMP runtime."""
    if threads:
        faiss.omp_set_num_threads(threads)


class OneThread:
    """Within it, kernels called from this thread use no other: many short calls would only wait for each other."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before: int = faiss.omp_get_max_threads()
        if self._before != 1:
            faiss.omp_set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        if self._before != 1:
            faiss.omp_set_num_threads(self._before)
