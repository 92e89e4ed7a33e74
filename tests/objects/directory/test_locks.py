"""Locks between real processes: forked, killed and stopped ones hold up nobody but themselves."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from penstock.disk import RealDisk
from penstock.errors import Unavailable
from penstock.objects import DirectoryStore, Register, Stamped, StampedFormat
from penstock.objects.register.stamp import BytesCodec
from penstock.testing import ManualClock, inline


@contextmanager
def forked() -> Iterator[None]:
    """A child that only lives: it holds what it has inherited until the block ends."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    try:
        yield
    finally:
        os.close(reading)
        os.close(writing)
        os.waitpid(child, 0)


def test_a_child_forked_while_a_lock_is_held_does_not_keep_it(tmp_path: Path) -> None:
    disk, path = RealDisk(), f"{tmp_path}/lock"
    lock = disk.lock(path)
    lock.__enter__()
    with forked():
        lock.__exit__(None, None, None)
        with disk.lock(path):
            pass


FORK_AND_DIE = """
import os, signal, sys
from penstock.disk import RealDisk
lock = RealDisk().lock(sys.argv[1])
lock.__enter__()
if os.fork() == 0:
    # Outlives its parent, until the test closes the pipe that is its standard input.
    sys.stdout.write("forked\\n")
    sys.stdout.flush()
    os.read(0, 1)
    os._exit(0)
signal.pause()
"""


@pytest.mark.processes
def test_a_child_does_not_keep_the_lock_of_a_parent_that_was_killed(tmp_path: Path) -> None:
    path = f"{tmp_path}/lock"
    command = [sys.executable, "-c", FORK_AND_DIE, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        try:
            assert parent.stdout.readline() == b"forked\n"
            with pytest.raises(BlockingIOError), RealDisk().lock(path):
                pass
        finally:
            parent.kill()
        os.waitid(os.P_PID, parent.pid, os.WEXITED | os.WNOWAIT)
        with RealDisk().lock(path):
            pass


@pytest.mark.processes
def test_a_busy_store_goes_on_though_its_process_forks_all_the_time(tmp_path: Path) -> None:
    """As with `multiprocessing` beside a producer: every child lives on, and none takes a lock along."""

    async def promise() -> None:
        store = DirectoryStore(str(tmp_path))
        writes = [asyncio.create_task(_append(store, str(number))) for number in range(6)]
        # The last child goes first: the others are told of their end through pipes that it has inherited.
        with ExitStack() as children:
            for _ in range(40):
                children.enter_context(forked())
                await asyncio.sleep(0)
            async with asyncio.timeout(60):
                await asyncio.gather(*writes)
        await store.close()

    asyncio.run(promise())


async def _append(store: DirectoryStore, name: str) -> None:
    """Writers of one key, so that its lock is held most of the time."""
    for _ in range(20):
        await store.put("object", name.encode())


# A stopped holder ---------------------------------------------------------------------------------

HOLD_AND_STOP = """
import os, signal, sys
from penstock.objects.directory.locks import Locks
from penstock.disk import RealDisk
lock = Locks(RealDisk(), sys.argv[1]).held(sys.argv[2])
lock.__enter__()
os.kill(os.getpid(), signal.SIGSTOP)
"""


@contextmanager
def stopped_holder(root: Path, key: str) -> Iterator[int]:
    """Another process, stopped while it holds the lock of `key`; its number."""
    holder = subprocess.Popen([sys.executable, "-c", HOLD_AND_STOP, f"{root}/.penstock/locks", key])
    _, status = os.waitpid(holder.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    try:
        yield holder.pid
    finally:
        holder.send_signal(signal.SIGCONT)
        holder.wait()


@pytest.mark.processes
def test_a_stopped_lock_holder_holds_up_the_keys_of_its_lock_and_nothing_else(tmp_path: Path) -> None:
    async def promise() -> None:
        store = DirectoryStore(str(tmp_path), lock_seconds_max=0.5)
        await store.put("held", b"before")
        await store.put("other", b"before")
        with stopped_holder(tmp_path, "held") as pid:
            stuck = [asyncio.create_task(store.put("held", b"after")) for _ in range(12)]
            stuck += [asyncio.create_task(store.delete("held")) for _ in range(12)]  # type: ignore[arg-type]
            await store.put("other", b"after")
            assert (await store.get("held")).data == b"before"
            answers = await asyncio.gather(*stuck, return_exceptions=True)
            for answer in answers:
                assert isinstance(answer, Unavailable)
                assert f"process {pid} (" in answer.why
                assert "stopped" in answer.why
            await store.close()
        assert [*(tmp_path / ".penstock/temporary").iterdir()] == []
        reopened = DirectoryStore(str(tmp_path))
        await reopened.put("held", b"after")
        await reopened.close()

    asyncio.run(promise())


@pytest.mark.processes
def test_a_register_under_a_stopped_lock_holder_says_that_nothing_was_written_and_by_whom(tmp_path: Path) -> None:
    async def promise() -> None:
        clock = ManualClock()
        store = DirectoryStore(str(tmp_path), clock=clock, offload=inline)
        register = Register(store, "held", StampedFormat(BytesCodec()), clock=clock)
        await register.update(lambda value: value.map(lambda _: b"before"))
        with stopped_holder(tmp_path, "held") as pid:
            update = asyncio.create_task(register.update(_after))
            await clock.until_sleeping()
            # The deadline is the loop's own, real time: enough to hear of the lock, too little to give up.
            await clock.run_for(6.0)
            assert not update.done()
            assert f"process {pid} (" in register._cell.fault
        await clock.run_for(6.0)
        assert (await update).payload == b"after"

    asyncio.run(promise())


def _after(value: Stamped[bytes]) -> Stamped[bytes]:
    return value.map(lambda _: b"after")


@pytest.mark.processes
def test_a_write_given_up_while_it_waits_for_a_lock_leaves_nothing(tmp_path: Path) -> None:
    async def promise() -> None:
        store = DirectoryStore(str(tmp_path), lock_seconds_max=60)
        await store.put("held", b"before")
        with stopped_holder(tmp_path, "held"):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await store.put("held", b"after")
            await store.close()
            assert [*(tmp_path / ".penstock/temporary").iterdir()] == []

    asyncio.run(promise())
    assert (tmp_path / "held").read_bytes() == b"before"
