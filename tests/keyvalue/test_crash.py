"""What is durable outlives the process and the power; what is not is whole or absent, and never out of order."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from slatedb import uniffi
from tests.campaigns import IS_LONG

from penstock.keyvalue import KeyValue, open_keyvalue
from penstock.keyvalue.durable_directory import DurableDirectory
from penstock.keyvalue.slate import SlateKeyValue

PROGRAM = Path(__file__).with_name("process.py")
_SPEC = importlib.util.spec_from_file_location("keyvalue_process", PROGRAM)
process: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(process)

KILLS = 4
POWER_CUTS = 50 if IS_LONG else 10


@contextmanager
def running(*arguments: str, wrapper: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    command = [*wrapper, sys.executable, str(PROGRAM), *arguments]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stdin.close()


async def whole_batches(store: KeyValue) -> list[int]:
    """The numbers of the batches that are there; fails on one that is there in part."""
    found: dict[int, dict[bytes, bytes]] = {}
    async for block in store.scan_prefix(b"batch/"):
        for key, value in block:
            found.setdefault(int(key[6:14]), {})[key] = value
    for number, rows in found.items():
        written = {key: value for key, value in process.batch(number).operations() if key.startswith(b"batch/")}
        assert rows == written, f"batch {number} is not whole"
    return sorted(found)


async def reopened(url: str, path: str = "store") -> tuple[list[int], int]:
    """The batches of a store, and the newest number it knows of."""
    store = await open_keyvalue(url, path)
    try:
        return await whole_batches(store), int(await store.get(b"newest") or 0)
    finally:
        await store.close()


@pytest.mark.chaos(seeds=1)
def test_after_kill_9_every_durable_batch_is_whole_and_none_is_partial(tmp_path: Path, seed: int) -> None:
    """One store, killed at moments that the seed chooses; the writer of each round goes on where the last left off."""
    entropy = random.Random(seed)
    reported: set[int] = set()
    newest = 0
    for _ in range(KILLS):
        with running("write", tmp_path.as_uri(), "store", str(newest)) as child:
            for _ in range(entropy.randrange(1, 60)):
                reported.add(int(child.stdout.readline()))
            child.send_signal(signal.SIGKILL)
            reported |= {int(line) for line in child.stdout if line.endswith("\n")}
        present, newest = asyncio.run(reopened(tmp_path.as_uri()))
        assert reported <= set(present), f"seed {seed}: durable batches are missing"
        assert present == list(range(1, newest + 1)), f"seed {seed}: a later batch outlived an earlier one"


@pytest.mark.processes
def test_a_second_process_fences_the_first(tmp_path: Path) -> None:
    async def scenario(child: subprocess.Popen[str]) -> None:
        assert child.stdout.readline() == "ready\n"
        assert answer(child) == "durable"
        store = await open_keyvalue(tmp_path.as_uri(), "store")
        assert [answer(child), answer(child)] == ["Fenced", "Fenced"]
        assert await whole_batches(store) == [1]
        await (await store.write(process.batch(2))).durable()
        await store.close()

    with running("obey", tmp_path.as_uri(), "store") as child:
        asyncio.run(scenario(child))


def answer(child: subprocess.Popen[str]) -> str:
    child.stdin.write("write\n")
    child.stdin.flush()
    return child.stdout.readline().strip()


@pytest.mark.processes
def test_a_follower_in_another_process_sees_what_is_durable(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await open_keyvalue(tmp_path.as_uri(), "store")
        await (await store.write(process.batch(1))).durable()
        with running("follow", tmp_path.as_uri(), "store") as child:
            assert [await line(child), await line(child)] == ["ready", "1"]
            for number in range(2, 6):
                await (await store.write(process.batch(number))).durable()
                async with asyncio.timeout(60):
                    assert await line(child) == str(number)
        await store.close()

    async def line(child: subprocess.Popen[str]) -> str:
        return (await asyncio.to_thread(child.stdout.readline)).strip()

    asyncio.run(scenario())


@pytest.mark.processes
def test_the_file_system_is_synced_between_the_log_file_and_the_acknowledgement(tmp_path: Path) -> None:
    """Watched from outside, in the order of the system calls."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed; test_slate.py holds the same promise from inside")
    trace = tmp_path / "trace"
    watch = (strace, "-f", "-qq", "-o", str(trace), "-e", "trace=syncfs,rename,link,linkat,write")
    with running("obey", (tmp_path / "data").as_uri(), "store", wrapper=watch) as child:
        if child.stdout.readline() != "ready\n":
            pytest.skip("this machine does not let strace watch a process")
        assert [answer(child) for _ in range(3)] == ["durable"] * 3
    calls = whole_calls(trace.read_text(errors="replace").splitlines())
    acknowledged = [call.begun for call in calls if 'write(1, "durable' in call.text]
    assert len(acknowledged) == 3
    for begin, end in zip([0, *acknowledged], acknowledged, strict=False):
        span = [call for call in calls if begin <= call.begun and call.ended < end]
        log = max(call.ended for call in span if "/wal/" in call.text)
        assert any("syncfs" in call.text and call.text.endswith("= 0") for call in span if call.begun > log)


class SystemCall(NamedTuple):
    """The numbers of the lines on which a call began and ended, and what it was."""

    begun: int
    ended: int
    text: str


def whole_calls(lines: list[str]) -> list[SystemCall]:
    """A call that another thread's call interrupts stands on two lines of the trace."""
    calls: list[SystemCall] = []
    begun: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(lines):
        thread, _, text = line.partition(" ")
        if text.endswith("<unfinished ...>"):
            begun[thread] = number, text
        elif text.lstrip().startswith("<... ") and thread in begun:
            first, beginning = begun.pop(thread)
            calls.append(SystemCall(first, number, beginning + text))
        else:
            calls.append(SystemCall(number, number, text))
    return calls


class PhotographedDirectory(DurableDirectory):
    """Notes the order in which names appeared, and which of them the last finished sync covered."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.synced: list[str] = []
        self.syncs = 0

    def sync(self) -> None:
        names = self.names()
        super().sync()
        self.synced, self.syncs = names, self.syncs + 1

    def names(self) -> list[str]:
        """Files in the order they were renamed into place: that is when their inode changed last."""
        files = [path for path in self.folder.rglob("*") if path.is_file() and "#" not in path.name]
        return [str(path.relative_to(self.folder)) for path in sorted(files, key=lambda path: path.stat().st_ctime_ns)]


@pytest.mark.chaos(seeds=1)
def test_after_a_power_cut_every_durable_batch_is_whole_and_in_order(tmp_path: Path, seed: int) -> None:
    """The disk holds what the last sync covered, and any number of the names that came after, in their order.

    Files are written synchronously, so a name stands for its whole contents; the journal keeps the
    order of names. Each image is opened as a store of its own.
    """
    entropy = random.Random(seed)
    images = asyncio.run(photographed(tmp_path / "data", entropy))
    for number, (names, durable) in enumerate(images):
        image = tmp_path / f"image-{number}"
        for name in names:
            (image / "store" / name).parent.mkdir(parents=True, exist_ok=True)
            # A link is enough: SlateDB never changes a file, it writes another.
            os.link(tmp_path / "data" / "store" / name, image / "store" / name)
        present, newest = asyncio.run(reopened(image.as_uri()))
        assert durable <= set(present), f"seed {seed}: durable batches are missing"
        assert present == list(range(1, newest + 1)), f"seed {seed}: a later batch outlived an earlier one"
        shutil.rmtree(image)


async def photographed(folder: Path, entropy: random.Random) -> list[tuple[list[str], set[int]]]:
    """Names that a power cut would leave, at moments of the seed's choice, and the batches durable by then."""
    directory = PhotographedDirectory(folder / "store")
    store = await small_store(folder, directory)
    durable: set[int] = set()
    images: list[tuple[list[str], set[int]]] = []

    async def wait(number: int, handle: Any) -> None:
        await handle.durable()
        durable.add(number)
        if len(images) < POWER_CUTS and entropy.random() < 0.1:
            certain, known = list(directory.synced), set(durable)
            later = [name for name in directory.names() if name not in certain]
            images.append((certain + later[: entropy.randint(0, len(later))], known))

    waits = []
    for number in range(1, 500 if IS_LONG else 200):
        waits.append(asyncio.ensure_future(wait(number, await store.write(process.batch(number)))))
        if len(waits) % entropy.randint(1, 8) == 0:
            await waits[-1]
    await asyncio.gather(*waits)
    await store.close()
    assert images, "the seed chose no moment"
    assert any("compacted" in name for names, _ in images for name in names), "no image has a sorted file"
    return images


async def small_store(folder: Path, directory: DurableDirectory) -> SlateKeyValue:
    """A store that writes sorted files and manifests often, so that images catch them half done."""
    builder = uniffi.ObjectStoreBuilder(uniffi.ObjectStoreType.LOCAL)
    builder.with_config("local_path", str(folder))
    settings = uniffi.Settings.default()
    for name, value in {"flush_interval": '"2ms"', "l0_sst_size_bytes": "2000000"}.items():
        settings.set(name, value)
    settings.set("compactor_options.poll_interval", '"20ms"')
    settings.set("compactor_options.worker.compactions_poll_interval", '"20ms"')
    database = uniffi.DbBuilder("store", builder.build())
    database.with_settings(settings)
    return SlateKeyValue(await database.build(), "the store", directory=directory)
