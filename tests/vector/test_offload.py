"""Work beside the event loop: only when it is much, and with the threads that were asked for."""

from __future__ import annotations

import asyncio
import threading

import faiss
import pytest

from penstock.vector.offload import OneThread, offload


def test_little_work_stays_and_much_work_leaves_the_loops_thread() -> None:
    async def run() -> tuple[int, int]:
        return await offload(10, 0, threading.get_ident), await offload(100_000, 0, threading.get_ident)

    little, much = asyncio.run(run())
    assert little == threading.get_ident() != much


@pytest.mark.parametrize("rows", [10, 100_000])
def test_kernels_use_the_threads_that_were_asked_for_wherever_the_work_is_done(rows: int) -> None:
    before = faiss.omp_get_max_threads()
    try:
        assert asyncio.run(offload(rows, 3, faiss.omp_get_max_threads)) == 3
    finally:
        faiss.omp_set_num_threads(before)


def test_an_error_of_the_work_reaches_the_caller() -> None:
    for rows in (10, 100_000):
        with pytest.raises(ZeroDivisionError):
            asyncio.run(offload(rows, 0, divmod, 1, 0))


def test_kernels_use_one_thread_for_a_while_and_then_as_many_as_before_also_after_an_error() -> None:
    before = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(3)
        with pytest.raises(ZeroDivisionError), OneThread():
            assert faiss.omp_get_max_threads() == 1
            raise ZeroDivisionError
        assert faiss.omp_get_max_threads() == 3
    finally:
        faiss.omp_set_num_threads(before)
