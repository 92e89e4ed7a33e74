"""The catalog between real processes on a directory: many at once, one killed, one stopped, one forked."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.catalog.samples import data_file, run

from penstock.catalog import Catalog, CatalogConfig, Lease, verify_catalog
from penstock.clock import SYSTEM_CLOCK
from penstock.errors import Conflict, Unsupported
from penstock.objects import open_store

pytestmark = pytest.mark.slow

# A busy machine may take its time: what is held here is that nothing is lost.
CONFIG = CatalogConfig(inline_files_max=50, commit_deadline_seconds=300.0)

WRITERS = """
import asyncio, sys
from tests.catalog.samples import data_file
from tests.catalog.test_processes import CONFIG
from penstock.catalog import Catalog
from penstock.objects import open_store

async def write(url, number):
    store = await open_store(url)
    async with await Catalog.open(store, "lake", CONFIG) as catalog:
        for turn in range(5):
            await catalog.register([data_file(number * 5 + turn)])
            print(number * 5 + turn, flush=True)
    await store.close()

async def main(url, first, count):
    await asyncio.gather(*(write(url, number) for number in range(first, first + count)))

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""

COMPACTOR = """
import asyncio, sys
from tests.catalog.samples import data_file
from tests.catalog.test_processes import CONFIG
from penstock.catalog import Catalog
from penstock.errors import Conflict
from penstock.objects import open_store

async def main(url):
    store = await open_store(url)
    async with await Catalog.open(store, "lake", CONFIG) as catalog:
        paths = (await catalog.plan()).paths
        lease = await catalog.lease(paths, "stopped", seconds=0.1)
        print("leased", flush=True)
        sys.stdin.readline()
        try:
            await catalog.complete_compaction(paths, data_file(7, path="stopped.parquet", level=1), lease)
        except Conflict as error:
            print("conflict", error, flush=True)
    await store.close()

asyncio.run(main(sys.argv[1]))
"""


def started(program: str, *arguments: str) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"},
    )


async def opened(url: str) -> tuple[Any, Catalog]:
    store = await open_store(url)
    return store, await Catalog.open(store, "lake", CONFIG)


def numbers(process: subprocess.Popen[str]) -> set[int]:
    assert process.stdout is not None
    return {int(line) for line in process.stdout}


def test_twenty_writers_in_four_processes_register_five_files_each_and_none_is_lost(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    processes = [started(WRITERS, url, str(first), "5") for first in range(0, 20, 5)]
    acked = set().union(*(numbers(process) for process in processes))
    assert [process.wait() for process in processes] == [0] * 4
    assert acked == set(range(100))

    async def session() -> None:
        store, catalog = await opened(url)
        plan = await catalog.plan()
        assert sorted(plan.paths) == sorted(data_file(number).path for number in range(100))
        assert await verify_catalog(catalog) == []
        await catalog.close()
        await store.close()

    run(session())


def test_a_writer_killed_in_the_middle_loses_nothing_that_it_was_told(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"
    process = started(WRITERS, url, "0", "5")
    assert process.stdout is not None
    acked = {int(process.stdout.readline()) for _ in range(8)}
    process.send_signal(signal.SIGKILL)
    acked |= numbers(process)
    process.wait()

    async def session() -> None:
        store, catalog = await opened(url)
        paths = set((await catalog.plan()).paths)
        assert {data_file(number).path for number in acked} <= paths
        assert await verify_catalog(catalog) == []
        await catalog.register([data_file(number) for number in range(25)])
        assert len(await catalog.plan()) == 25
        await catalog.close()
        await store.close()

    run(session())


def test_a_compactor_that_stood_still_while_its_lease_ran_out_changes_nothing(tmp_path: Path) -> None:
    url = f"file://{tmp_path}"

    async def session() -> None:
        store, catalog = await opened(url)
        files = [data_file(number) for number in range(4)]
        await catalog.register(files)
        process = started(COMPACTOR, url)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "leased\n"
        process.send_signal(signal.SIGSTOP)
        lease = await taken_over(catalog, [file.path for file in files])
        await catalog.complete_compaction(files, data_file(8, path="second.parquet", level=1), lease)
        process.send_signal(signal.SIGCONT)
        answer, _ = process.communicate("go on\n")
        assert answer.startswith("conflict")
        assert "not held" in answer
        assert (await catalog.plan()).paths == ["second.parquet"]
        await catalog.close()
        await store.close()

    run(session())


async def taken_over(catalog: Catalog, paths: list[str]) -> Lease:
    """The lease, once that of another has run out."""
    while True:
        try:
            return await catalog.lease(paths, "second")
        except Conflict:
            await SYSTEM_CLOCK.sleep(0.02)


def test_a_catalog_is_not_used_in_a_fork(tmp_path: Path) -> None:
    """A fork has its parent's writer names and numbers: each would take the other's proof for its own."""
    with asyncio.Runner() as runner:
        store, catalog = runner.run(opened(f"file://{tmp_path}"))
        runner.run(catalog.register([data_file(0)]))
        child = os.fork()
        if child == 0:
            code = 2
            try:
                code = asked_in_fork(catalog)
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        runner.run(catalog.register([data_file(1)]))
        assert len(runner.run(catalog.plan())) == 2
        runner.run(catalog.close())
        runner.run(store.close())


def asked_in_fork(catalog: Catalog) -> int:
    """0 when every call is refused; the loop of the parent is not touched."""
    for call in (catalog.plan, lambda: catalog.register([data_file(2)]), catalog.refresh_map):
        waiting: Any = call()  # type: ignore[operator]
        try:
            waiting.send(None)
        except Unsupported:
            continue
        return 1
    return 0
