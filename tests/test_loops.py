"""A loop on a thread of its own: it serves the process that made it, and no other."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

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
