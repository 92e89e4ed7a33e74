"""A loop on a thread of its own: it serves the process that made it, and no other."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import CancelledError

import pytest

from penstock.errors import Closed, Unsupported
from penstock.loops import LoopThread, Threads


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


def test_calls_on_one_thread_begin_in_their_order_and_answer_what_they_return_or_raise() -> None:
    async def scenario() -> None:
        lane, begun = Threads(1, "lane", "the lane"), list[int]()

        def work(number: int) -> int:
            begun.append(number)
            if number % 10 == 3:
                raise ValueError(number)
            return number * number

        answers = await asyncio.gather(*(lane(work, number) for number in range(100)), return_exceptions=True)
        assert begun == list(range(100))
        for number, answer in enumerate(answers):
            if number % 10 == 3:
                assert isinstance(answer, ValueError)
            else:
                assert answer == number * number
        lane.close()

    asyncio.run(scenario())


def test_no_more_threads_are_started_than_calls_need_nor_than_there_may_be() -> None:
    async def scenario() -> None:
        threads = Threads(3, "penstock-counted", "the threads")

        def alive() -> int:
            return sum(thread.name.startswith("penstock-counted") for thread in threading.enumerate())

        for _ in range(20):
            await threads(int)
        assert alive() == 1, "one call at a time needs one thread"
        together = threading.Barrier(4)
        waiting = [asyncio.ensure_future(threads(together.wait, 30)) for _ in range(3)]
        await asyncio.to_thread(together.wait, 30)
        await asyncio.gather(*waiting)
        await asyncio.gather(*(threads(int) for _ in range(50)))
        assert alive() == 3
        threads.close()
        assert alive() == 0

    asyncio.run(scenario())


def test_a_call_that_was_given_up_before_its_turn_is_never_begun() -> None:
    async def scenario() -> None:
        lane, gate, begun = Threads(1, "lane", "the lane"), threading.Event(), list[str]()
        first = asyncio.ensure_future(lane(gate.wait, 30))
        second = asyncio.ensure_future(lane(begun.append, "second"))
        third = asyncio.ensure_future(lane(begun.append, "third"))
        second.cancel()
        gate.set()
        assert await first
        await third
        assert begun == ["third"]
        lane.close()

    asyncio.run(scenario())


def test_close_waits_for_what_was_taken_and_refuses_what_comes_later() -> None:
    async def scenario() -> None:
        lane, done = Threads(1, "lane", "the lane"), list[int]()
        taken = [asyncio.ensure_future(lane(done.append, number)) for number in range(20)]
        lane.close()
        assert done == list(range(20))
        with pytest.raises(Closed, match="the lane"):
            lane(int)
        lane.close()
        await asyncio.gather(*taken)

    asyncio.run(scenario())


def test_a_call_whose_loop_has_ended_does_not_stop_the_thread() -> None:
    lane, gate = Threads(1, "lane", "the lane"), threading.Event()

    async def leave() -> None:
        lane(gate.wait, 30)

    async def ask() -> int:
        return await lane(lambda: 42)

    asyncio.run(leave())
    gate.set()
    assert asyncio.run(ask()) == 42
    lane.close()


def test_an_exception_that_no_future_takes_is_told_all_the_same() -> None:
    async def scenario() -> None:
        lane = Threads(1, "lane", "the lane")
        with pytest.raises(RuntimeError, match="StopIteration"):
            await lane(next, iter(()))
        lane.close()

    asyncio.run(scenario())


def test_whoever_forgets_to_close_leaves_no_thread_behind() -> None:
    async def scenario() -> list[threading.Thread]:
        forgotten = Threads(2, "penstock-forgotten", "the threads")
        await asyncio.gather(*(forgotten(threading.Barrier(1).wait) for _ in range(4)))
        return [thread for thread in threading.enumerate() if thread.name.startswith("penstock-forgotten")]

    threads = asyncio.run(scenario())
    gc.collect()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.processes
def test_a_program_that_ends_without_closing_ends_what_it_began() -> None:
    """Its threads are joined before Python takes itself apart."""
    program = (
        "import asyncio, os, threading\n"
        "from penstock.loops import Threads\n"
        "lane = Threads(1, 'lane', 'the lane')\n"
        "begun = threading.Event()\n"
        "def work():\n"
        "    begun.set()\n"
        "    threading.Event().wait(0.2)\n"
        "    os.write(1, b'done')\n"
        "async def main():\n"
        "    lane(work)\n"
        "asyncio.run(main())\n"
        "begun.wait(30)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"done", b"")


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_is_refused_by_threads_and_ends_at_once() -> None:
    door, lane, gate = LoopThread("door"), Threads(1, "lane", "the lane"), threading.Event()

    async def call() -> bool:
        return await lane(gate.wait, 30)

    async def begin() -> asyncio.Task[bool]:
        return asyncio.create_task(call())

    async def ended(task: asyncio.Task[bool]) -> bool:
        return await task

    held = door.run(begin())
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            asyncio.run(call())
        except Unsupported:
            lane.close()
            os._exit(7)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    gate.set()
    assert door.run(ended(held))
    lane.close()
    door.close()
