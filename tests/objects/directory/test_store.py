"""The local directory: durable, in order, across processes, and never outside itself."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import SYSTEM_CLOCK
from penstock.disk import FileStat, RealDisk
from penstock.errors import (
    Closed,
    Conflict,
    InvalidInput,
    NotFound,
    Unavailable,
    Unsupported,
)
from penstock.objects import DirectoryStore, open_store
from penstock.testing import ManualClock, SeededEntropy, inline


def on_directory(root: Path, promise: Callable[[DirectoryStore], Awaitable[None]], **doors: Any) -> None:
    async def run() -> None:
        store = DirectoryStore(str(root), **doors)
        try:
            await promise(store)
        finally:
            await store.close()

    asyncio.run(run())


async def listed(store: DirectoryStore, prefix: str = "") -> list[str]:
    return [meta.key async for page in store.list(prefix) for meta in page]


def files(root: Path) -> list[str]:
    """Every file that is neither a lock nor the reserve."""
    apart = {f"{root}/.penstock/locks", f"{root}/.penstock/reserve"}
    return sorted(
        str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and str(path.parent) not in apart
    )


# Files --------------------------------------------------------------------------------------------


def test_an_object_is_a_plain_file_under_its_key(tmp_path: Path) -> None:
    async def promise(store: DirectoryStore) -> None:
        await store.put("a/b/c", b"body")
        assert (tmp_path / "a/b/c").read_bytes() == b"body"
        assert files(tmp_path) == ["a/b/c"]

    on_directory(tmp_path, promise)


def test_the_directory_and_all_above_it_are_made_by_the_first_write_and_not_before(tmp_path: Path) -> None:
    root = tmp_path / "not/yet/there"

    async def promise(store: DirectoryStore) -> None:
        assert await listed(store) == []
        with pytest.raises(NotFound):
            await store.get("object")
        assert not root.exists()
        await store.put("object", b"")
        assert await listed(store) == ["object"]

    on_directory(root, promise)


@pytest.mark.parametrize("mount_point_stays", [False, True])
def test_a_directory_that_went_away_does_not_pass_for_an_empty_store(tmp_path: Path, mount_point_stays: bool) -> None:
    """A disk that is no longer mounted: a register would take it for a value that nobody has written yet."""
    root = tmp_path / "store"

    async def promise(store: DirectoryStore) -> None:
        await store.put("a/b", b"1")
        root.rename(tmp_path / "unmounted")
        if mount_point_stays:
            root.mkdir()
        for read in (
            store.get("a/b"),
            store.head("a/b"),
            store.get_range("a/b", 0, 1),
            listed(store),
            listed(store, "a/"),
        ):
            with pytest.raises(Unavailable, match="was there and is gone"):
                await read
        if mount_point_stays:
            root.rmdir()
        (tmp_path / "unmounted").rename(root)
        assert await listed(store) == ["a/b"]

    on_directory(root, promise)


def test_a_relative_path_is_refused() -> None:
    with pytest.raises(InvalidInput, match="relative"):
        DirectoryStore("relative/path")


def test_a_name_cannot_be_an_object_and_a_folder(tmp_path: Path) -> None:
    async def promise(store: DirectoryStore) -> None:
        await store.put("a", b"object")
        await store.put("b/c", b"object")
        for key in ("a/below", "b"):
            with pytest.raises(InvalidInput, match="both a file and a directory"):
                await store.put(key, b"")
            with pytest.raises(InvalidInput, match="both a file and a directory"):
                await store.put_if(key, b"", version=None)
        assert files(tmp_path) == ["a", "b/c"]

    on_directory(tmp_path, promise)


def test_a_segment_too_long_for_the_file_system_is_refused(tmp_path: Path) -> None:
    async def promise(store: DirectoryStore) -> None:
        for key in ("x" * 256, f"folder/{'é' * 128}", f"{'x' * 256}/object"):
            for call in (store.put(key, b""), store.get(key)):
                with pytest.raises(InvalidInput, match="too long"):
                    await call
        assert files(tmp_path) == []

    on_directory(tmp_path, promise)


def test_foreign_files_are_objects_if_their_names_are_keys(tmp_path: Path) -> None:
    async def promise(store: DirectoryStore) -> None:
        (tmp_path / "foreign").write_bytes(b"body")
        (tmp_path / "back\\slash").write_bytes(b"")
        (tmp_path / os.fsdecode(b"not-\xff-text")).write_bytes(b"")
        assert await listed(store) == ["foreign"]
        assert (await store.get("foreign")).data == b"body"

    on_directory(tmp_path, promise)


def test_an_empty_folder_is_not_listed_and_stays(tmp_path: Path) -> None:
    async def promise(store: DirectoryStore) -> None:
        await store.put("folder/object", b"")
        await store.delete("folder/object")
        assert await listed(store) == []
        assert (tmp_path / "folder").is_dir()

    on_directory(tmp_path, promise)


# Nothing outside ----------------------------------------------------------------------------------


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    return outside


@pytest.mark.parametrize("place", ["link", "folder/link"])
def test_a_link_leads_nowhere(tmp_path: Path, outside: Path, place: str) -> None:
    root = tmp_path / "store"

    async def promise(store: DirectoryStore) -> None:
        await store.put("folder/object", b"")
        (root / place).symlink_to(outside)
        for call in (
            store.get(f"{place}/secret"),
            store.head(f"{place}/secret"),
            store.put(f"{place}/secret", b"overwritten"),
            store.put(f"{place}/new/object", b""),
            store.delete(f"{place}/secret"),
            store.get(place),
            store.put(place, b""),
        ):
            with pytest.raises(InvalidInput, match="symbolic link"):
                await call
        assert await listed(store) == ["folder/object"]
        with pytest.raises(InvalidInput, match="symbolic link"):
            await listed(store, f"{place}/")

    on_directory(root, promise)
    assert files(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


def test_a_link_to_a_file_is_no_object(tmp_path: Path, outside: Path) -> None:
    root = tmp_path / "store"

    async def promise(store: DirectoryStore) -> None:
        await store.prepare()
        (root / "link").symlink_to(outside / "secret")
        for call in (store.get("link"), store.put("link", b""), store.delete("link")):
            with pytest.raises(InvalidInput, match="symbolic link"):
                await call
        assert await listed(store) == []

    on_directory(root, promise)


def test_the_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    async def promise() -> None:
        store = await open_store(f"file://{tmp_path}/link")
        await store.put("object", b"")
        await store.close()

    asyncio.run(promise())
    assert (tmp_path / "real/object").exists()


# Across processes ---------------------------------------------------------------------------------

INCREMENT = """
import asyncio, sys
from penstock.errors import Closed, Conflict
from penstock.objects import open_store

async def main():
    store = await open_store(sys.argv[1])
    for _ in range(int(sys.argv[2])):
        while True:
            found = await store.get("counters/one")
            try:
                await store.put_if("counters/one", b"%d" % (int(found.data) + 1), version=found.meta.version)
                break
            except Conflict:
                pass
    await store.close()

asyncio.run(main())
"""


@pytest.mark.processes
def test_processes_increment_a_counter_without_losing_one(tmp_path: Path) -> None:
    async def promise(store: DirectoryStore) -> None:
        await store.put_if("counters/one", b"0", version=None)
        command = [sys.executable, "-c", INCREMENT, store.url, "50"]
        processes = [await asyncio.create_subprocess_exec(*command) for _ in range(4)]
        assert [await process.wait() for process in processes] == [0] * 4
        assert (await store.get("counters/one")).data == b"200"
        assert files(tmp_path) == ["counters/one"]

    on_directory(tmp_path, promise)


HOLD_AND_DIE = """
import os, signal, sys
from penstock.disk import RealDisk
locks = [RealDisk().lock(f"{sys.argv[1]}/{stripe}") for stripe in os.listdir(sys.argv[1])]
for lock in locks:
    lock.__enter__()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.processes
def test_the_lock_of_a_killed_process_holds_nobody_up(tmp_path: Path) -> None:
    async def promise(store: DirectoryStore) -> None:
        await store.put("object", b"before")
        locks = f"{tmp_path}/.penstock/locks"
        killed = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", HOLD_AND_DIE, locks], check=False)
        assert killed.returncode == -9
        async with asyncio.timeout(60):
            await store.put("object", b"after")

    on_directory(tmp_path, promise)


def test_many_may_open_a_new_directory_at_once(tmp_path: Path) -> None:
    async def promise() -> None:
        for number in range(20):
            url = f"file://{tmp_path}/{number}/deep/er"
            stores = await asyncio.gather(*(open_store(url) for _ in range(8)))
            await asyncio.gather(*(store.put(f"folder/{at}", b"") for at, store in enumerate(stores)))
            assert len([meta async for page in stores[0].list("folder/") for meta in page]) == 8
            await asyncio.gather(*(store.close() for store in stores))

    asyncio.run(promise())


def test_a_call_after_close_is_refused(tmp_path: Path) -> None:
    async def promise(store: DirectoryStore) -> None:
        await store.put("object", b"")
        await store.close()
        with pytest.raises(Closed):
            await store.put("object", b"")

    on_directory(tmp_path, promise)


def test_a_cancelled_write_is_whole_or_absent_and_disturbs_nobody(tmp_path: Path) -> None:
    async def promise(store: DirectoryStore) -> None:
        writes = [asyncio.create_task(store.put(f"object/{number}", b"x" * 100_000)) for number in range(40)]
        await writes[0]
        for write in writes[1::2]:
            write.cancel()
        await asyncio.gather(*writes, return_exceptions=True)
        # The threads may still be at it: closing waits for them.
        await store.close()

    on_directory(tmp_path, promise)

    async def reopened(store: DirectoryStore) -> None:
        found = await listed(store)
        assert {f"object/{number}" for number in range(0, 40, 2)} <= set(found)
        assert {(await store.get(key)).meta.size for key in found} == {100_000}
        assert [*(tmp_path / ".penstock/temporary").iterdir()] == []

    on_directory(tmp_path, reopened)


# Versions -----------------------------------------------------------------------------------------


def test_versions_never_repeat_though_time_stands_still_and_inodes_come_back(tmp_path: Path) -> None:
    async def promise(store: DirectoryStore) -> None:
        versions = []
        for number in range(200):
            versions.append((await store.put("object", b"same")).version)
            if number % 3 == 0:
                await store.delete("object")
        assert len(set(versions)) == 200

    on_directory(tmp_path, promise, clock=ManualClock(), entropy=SeededEntropy(1))


def test_a_write_is_stamped_after_the_one_it_replaces_though_the_clock_went_back(tmp_path: Path) -> None:
    async def promise(store: DirectoryStore) -> None:
        later = DirectoryStore(str(tmp_path), clock=ManualClock(SYSTEM_CLOCK.now_ms() + 10**9))
        first = await later.put("object", b"first")
        second = await store.put("object", b"second")
        third = await store.put_if("object", b"third", version=second.version)
        assert first.modified_ms <= second.modified_ms <= third.modified_ms
        assert len({first.version, second.version, third.version}) == 3
        await later.close()

    on_directory(tmp_path, promise)


class RoundingDisk(RealDisk):
    """Keeps whole seconds only, as some file systems do."""

    def stat(self, path: str) -> FileStat:
        found = super().stat(path)
        return FileStat(found.size, found.modified_ns // 10**9 * 10**9, found.inode, found.is_directory)


def test_a_file_system_that_rounds_stamps_is_refused(tmp_path: Path) -> None:
    async def promise(store: DirectoryStore) -> None:
        with pytest.raises(Unsupported, match="rounds time stamps"):
            await store.prepare()

    on_directory(tmp_path, promise, disk=RoundingDisk())


class OvertakingDisk(RealDisk):
    """Another writer, with a clock ahead, replaces the object just before the lock is taken."""

    def __init__(self, rival: Callable[[], None]) -> None:
        self.rival: Callable[[], None] | None = rival

    def lock(self, path: str) -> Any:
        rival, self.rival = self.rival, None
        if rival:
            rival()
        return super().lock(path)


def test_a_put_overtaken_by_a_later_stamp_is_stamped_later_still(tmp_path: Path) -> None:
    versions: list[str] = []

    def rival() -> None:
        async def write() -> None:
            ahead = DirectoryStore(str(tmp_path), offload=inline, clock=ManualClock(SYSTEM_CLOCK.now_ms() + 10**9))
            versions.append((await ahead.put("object", b"rival")).version)

        asyncio.run(write())

    async def promise(store: DirectoryStore) -> None:
        versions.append((await store.put("object", b"ours")).version)
        assert (await store.get("object")).data == b"ours"
        rival_ns, our_ns = (int(version.split("-")[0], 16) for version in versions)
        assert our_ns > rival_ns
        assert files(tmp_path) == ["object"]

    on_directory(tmp_path, promise, disk=OvertakingDisk(rival))


def test_a_put_if_overtaken_after_its_first_look_is_a_conflict_and_leaves_nothing(tmp_path: Path) -> None:
    def rival() -> None:
        async def write() -> None:
            await DirectoryStore(str(tmp_path), offload=inline).put("object", b"rival")

        asyncio.run(write())

    async def promise(store: DirectoryStore) -> None:
        with pytest.raises(Conflict):
            await store.put_if("object", b"ours", version=None)
        assert (await store.get("object")).data == b"rival"
        assert files(tmp_path) == ["object"]

    on_directory(tmp_path, promise, disk=OvertakingDisk(rival))


# What dead writers leave --------------------------------------------------------------------------


def test_temporary_files_are_never_listed_and_those_of_dead_writers_removed(tmp_path: Path) -> None:
    temporary = tmp_path / ".penstock/temporary"

    async def promise(store: DirectoryStore) -> None:
        await store.put("object", b"")
        for name, age_seconds in (("young", 60), ("old", 3700)):
            (temporary / name).write_bytes(b"half")
            stamp = SYSTEM_CLOCK.now_ms() / 1000 - age_seconds
            os.utime(temporary / name, (stamp, stamp))
        assert await listed(store) == ["object"]

    on_directory(tmp_path, promise)

    async def reopened(store: DirectoryStore) -> None:
        await store.prepare()
        assert [path.name for path in temporary.iterdir()] == ["young"]

    on_directory(tmp_path, reopened)
