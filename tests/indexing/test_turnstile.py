"""One at a time, micro-batches before the worker, and nobody is left waiting when it closes."""

from __future__ import annotations

import threading

import pytest

from penstock.errors import Closed
from penstock.indexing.job.turnstile import SpareTimeWorker, Turnstile

# Only a test that fails waits so long.
PATIENCE_SECONDS = 60.0


def in_thread(work: object) -> threading.Thread:
    assert callable(work)
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_batch_that_waits_goes_before_a_worker_that_waits() -> None:
    turnstile, order = Turnstile(), list[str]()

    def batch() -> None:
        with turnstile.batch():
            order.append("batch")

    def spare() -> None:
        with turnstile.spare(lambda: True):
            order.append("worker")

    with turnstile.batch():
        waiting = [in_thread(spare), in_thread(batch)]
        while not turnstile.batches_waiting:
            waiting[1].join(0.001)
    for thread in waiting:
        thread.join(PATIENCE_SECONDS)
    assert order == ["batch", "worker"]


def test_a_worker_works_while_there_is_work_and_wakes_up_when_a_batch_brings_some() -> None:
    turnstile, left, done = Turnstile(), [1, 1], threading.Event()

    def work() -> None:
        left.pop()
        if not left:
            done.set()

    worker = SpareTimeWorker(turnstile, lambda: bool(left), work, pytest.fail)  # type: ignore[arg-type]
    assert done.wait(PATIENCE_SECONDS)
    done.clear()
    with turnstile.batch():
        left.append(1)
    assert done.wait(PATIENCE_SECONDS)
    turnstile.close()
    worker.join()


def test_what_ends_a_worker_is_handed_on() -> None:
    failures: list[Exception] = []

    def work() -> None:
        raise ValueError("broken")

    worker = SpareTimeWorker(Turnstile(), lambda: True, work, failures.append)
    worker.join()
    assert [str(error) for error in failures] == ["broken"]


def test_closing_refuses_those_who_wait_and_those_who_pause() -> None:
    turnstile, refused = Turnstile(), list[str]()
    inside = threading.Event()

    def pause() -> None:
        with turnstile.batch():
            inside.set()
            try:
                turnstile.pause(PATIENCE_SECONDS)
            except Closed:
                refused.append("paused")

    def batch() -> None:
        try:
            with turnstile.batch():
                pytest.fail("a closed turnstile lets nobody in")
        except Closed:
            refused.append("waiting")

    threads = [in_thread(pause)]
    assert inside.wait(PATIENCE_SECONDS)
    threads.append(in_thread(batch))
    turnstile.close()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert sorted(refused) == ["paused", "waiting"]


def test_draining_waits_for_whoever_is_inside() -> None:
    turnstile, order = Turnstile(), list[str]()
    inside, leave = threading.Event(), threading.Event()

    def batch() -> None:
        with turnstile.batch():
            inside.set()
            leave.wait(PATIENCE_SECONDS)
            order.append("left")

    def drain() -> None:
        assert turnstile.drain()
        order.append("drained")

    threads = [in_thread(batch)]
    assert inside.wait(PATIENCE_SECONDS)
    turnstile.close()
    assert turnstile.closed
    assert not turnstile.drain(0)
    threads.append(in_thread(drain))
    leave.set()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert order == ["left", "drained"]
