"""A job waits for a rebuild for as long as that works, and no longer."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rich.console import Console

from penstock.cli.jobs.handover import announced, await_rebuild, is_gone, this_process
from penstock.cli.running.stop import Stop
from penstock.indexing.registry.rebuild_notice import NoticeBoard, read_notice

ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux names a process for good")
SECONDS_MAX = 120


def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def test_whoever_finds_a_rebuild_waits_for_its_end(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    shown, began, ended = console(), threading.Event(), threading.Event()

    def rebuild() -> None:
        with announced(url):
            began.set()
            ended.wait(SECONDS_MAX)

    thread = threading.Thread(target=rebuild)
    thread.start()
    assert began.wait(SECONDS_MAX)
    threading.Timer(0.2, ended.set).start()
    assert await_rebuild(url, Stop(), shown).over
    assert ended.is_set()
    thread.join()
    assert isinstance(shown.file, io.StringIO)
    assert "waiting for its end" in shown.file.getvalue()


def test_without_a_rebuild_nobody_waits_and_nothing_is_written(tmp_path: Path) -> None:
    assert await_rebuild(f"file://{tmp_path}/nowhere", Stop(), console()).number == 0
    assert not (tmp_path / "nowhere").exists()


def test_whoever_is_asked_to_end_does_not_wait(tmp_path: Path) -> None:
    stop = Stop()
    stop.signal = 15
    with announced(f"file://{tmp_path}"):
        assert not await_rebuild(f"file://{tmp_path}", stop, console()).over


@ON_LINUX
def test_a_rebuild_that_was_killed_on_this_machine_is_given_up_at_once(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    own = this_process()
    number = own.rpartition("/")[2].partition("@")[0]
    assert number == str(os.getpid())
    other = _name_of(process.pid)
    assert not is_gone(other)

    async def announce() -> None:
        async with await NoticeBoard.open(url) as board:
            await board.announce(other)

    asyncio.run(announce())
    process.kill()
    process.wait()
    assert is_gone(other)
    assert await_rebuild(url, Stop(), console()).over
    assert asyncio.run(read_notice(url)).over


@ON_LINUX
def test_a_process_of_another_machine_is_never_taken_for_gone() -> None:
    assert not is_gone(this_process())
    assert not is_gone(f"another-boot/pid:[1]/{os.getpid()}@1")
    assert not is_gone("")
    # The number was given to another process since.
    machine = this_process().rpartition("/")[0]
    assert is_gone(f"{machine}/{os.getpid()}@1")


def _name_of(number: int) -> str:
    """As that process would name itself."""
    machine = this_process().rpartition("/")[0]
    started = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{machine}/{number}@{started}"
