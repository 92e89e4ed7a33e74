"""A loop on a thread of its own: it serves the process that made it, and no other."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from concurrent.futures import CancelledError

import pytest

from penstock.errors import Closed, Unsupported
from penstock.loops import LoopThread


async def answer() -> int:
    return 42


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_is_refused_and_its_parent_served() -> None:
    thread = LoopThread("door")
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        refused = 0
        for call in (lambda: thread.run(answer()), thread.close, thread.check_home):
            try:
                call()
            except Unsupported:
                refused += 1
        os._exit(refused)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 3
    assert thread.run(answer()) == 42
    thread.close()


def test_a_closed_loop_says_so_and_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    thread = LoopThread("door")
    assert thread.run(asyncio.sleep(0, 7)) == 7
    thread.close()
    with pytest.raises(Closed):
        thread.run(answer())
    assert set(threading.enumerate()) <= before


def test_whoever_waits_when_another_thread_closes_the_loop_is_told() -> None:
    door = LoopThread("penstock-test")
    begun, told = threading.Event(), []

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    def wait() -> None:
        try:
            door.run(endless())
        except Closed as error:
            told.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert begun.wait(30)
    door.close()
    waiting.join(30)
    assert len(told) == 1, "it waits for ever"


def test_a_call_on_the_loops_own_thread_is_refused_instead_of_waiting_for_itself() -> None:
    door = LoopThread("penstock-test")

    async def calls_back() -> int:
        return door.run(answer())

    async def closes() -> None:
        door.close()

    for work in (calls_back, closes):
        with pytest.raises(Unsupported, match="its own thread"):
            door.run(work())
    door.close()


def test_a_call_that_cancels_itself_is_not_taken_for_a_closed_loop() -> None:
    door = LoopThread("penstock-test")

    async def gives_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(CancelledError):
        door.run(gives_up())
    door.close()
