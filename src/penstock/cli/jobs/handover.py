"""Between a rebuild and a job that follows: the one announces itself, the other waits for its end and goes on.

A rebuild is the store's writer while it runs, and fences whoever was. The notice in the store says so; here are the
thread that renews it, and the wait of those who find it. A process of this machine that was killed is known to be gone
at once; any other is believed to work for half a minute after its last sign.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from penstock.cli.running.stop import Stop
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import PenstockError
from penstock.indexing import RENEW_SECONDS, Notice, NoticeBoard, Watch, read_notice

__all__ = ["announced", "await_rebuild", "is_gone", "this_process"]

# An end is noticed so soon, by a look at one small object.
_LOOK_SECONDS: Final = 2.0
_PROC: Final = Path("/proc")
# Of /proc/PID/stat, behind the name: when the process began, in ticks since the machine did.
_STARTED_FIELD: Final = 19


@contextmanager
def announced(url: str, options: Mapping[str, Any] | None = None) -> Iterator[Notice]:
    """A notice that a rebuild works, for as long as the context lasts and the process lives."""
    options = options or {}
    notice = asyncio.run(_announce(url, options))
    left = threading.Event()
    thread = threading.Thread(
        target=_renew, args=(url, options, notice.number, left), name="penstock-notice", daemon=True
    )
    thread.start()
    try:
        yield notice
    finally:
        left.set()
        thread.join()
        # A notice that is not taken down is found to be silent later.
        with suppress(PenstockError):
            asyncio.run(_end(url, options, notice.number))


def await_rebuild(
    url: str,
    stop: Stop,
    console: Console,
    options: Mapping[str, Any] | None = None,
    *,
    clock: Clock = SYSTEM_CLOCK,
) -> Notice:
    """Return when no rebuild works at a store, or when `stop` is requested; the last notice."""
    return asyncio.run(_awaited(url, options or {}, stop, console, clock))


def this_process() -> str:
    """A name for this process that no other has on any machine; empty where the system does not tell."""
    return _process(os.getpid()) or ""


def is_gone(process: str) -> bool:
    """Whether a process of this machine has ended. False for one of another machine: nobody here knows."""
    machine, _, rest = process.rpartition("/")
    number = rest.partition("@")[0]
    if not number.isdigit() or machine != _machine():
        return False
    return _process(int(number)) != process


async def _awaited(url: str, options: Mapping[str, Any], stop: Stop, console: Console, clock: Clock) -> Notice:
    watch, told = Watch(), False
    while True:
        notice = await read_notice(url, dict(options))
        if stop.requested or notice.over:
            return notice
        if not watch.works(notice, clock.monotonic(), is_gone):
            return await _end(url, options, notice.number)
        if not told:
            console.print("an index of this store is being rebuilt: waiting for its end")
            told = True
        await clock.sleep(_LOOK_SECONDS)


async def _announce(url: str, options: Mapping[str, Any]) -> Notice:
    async with await NoticeBoard.open(url, dict(options)) as board:
        return await board.announce(this_process())


async def _end(url: str, options: Mapping[str, Any], number: int) -> Notice:
    async with await NoticeBoard.open(url, dict(options)) as board:
        return await board.end(number)


def _renew(url: str, options: Mapping[str, Any], number: int, left: threading.Event) -> None:
    async def renewed() -> None:
        async with await NoticeBoard.open(url, dict(options)) as board:
            await board.renew(number)

    while not left.wait(RENEW_SECONDS):
        # The next one may succeed; what is lost by a missing notice is courtesy and no data.
        with suppress(PenstockError):
            asyncio.run(renewed())


def _machine() -> str | None:
    """This boot of this machine, and the space that its process numbers are of."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return None


def _process(number: int) -> str | None:
    machine = _machine()
    try:
        told = (_PROC / str(number) / "stat").read_text()
    except OSError:
        return None
    fields = told.rpartition(")")[2].split()
    # A zombie has ended, and only waits to be counted.
    if machine is None or fields[0] in "ZX":
        return None
    return f"{machine}/{number}@{fields[_STARTED_FIELD]}"
