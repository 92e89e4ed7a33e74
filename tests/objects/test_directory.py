"""The local directory: durable, in order, across processes, and never outside itself."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import SYSTEM_CLOCK
from penstock.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    PenstockError,
    PermissionDenied,
    StorageFull,
    Unavailable,
    Unsupported,
)
from penstock.objects import DirectoryStore, open_store
from penstock.objects.disk import FileStat, RealDisk
from penstock.testing import ManualClock, PowerCut, SeededEntropy, TornDisk, inline


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
    """Every file that is neither a lock nor an object's folder."""
    return sorted(
        str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and "locks" not in path.parts
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


def test_a_relative_path_is_refused() -> None:
    with pytest.raises(InvalidInput, match="relative"):
        DirectoryStore("relative/path")


def test_a_name_cannot_be_an_object_and_a_folder(tmp_path: Path) -> None:
    async def promise(store: DirectoryStore) -> None:
        await store.put("a", b"object")
        await store.put("b/c", b"object")
        for key in ("a/below", "b"):
            with pytest.raises(InvalidInput, match="an object and a folder"):
                await store.put(key, b"")
            with pytest.raises(InvalidInput, match="an object and a folder"):
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
from penstock.errors import Conflict
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
from penstock.objects.disk import RealDisk
for stripe in os.listdir(sys.argv[1]):
    RealDisk().lock(f"{sys.argv[1]}/{stripe}").__enter__()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_lock_of_a_killed_process_holds_nobody_up(tmp_path: Path) -> None:
    async def promise(store: DirectoryStore) -> None:
        await store.put("object", b"before")
        locks = f"{tmp_path}/.penstock/locks"
        killed = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", HOLD_AND_DIE, locks], check=False)
        assert killed.returncode == -9
        async with asyncio.timeout(10):
            await store.put("object", b"after")

    on_directory(tmp_path, promise)


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


# A disk that fails --------------------------------------------------------------------------------


def torn(seed: int, **settings: Any) -> TornDisk:
    return TornDisk(entropy=SeededEntropy(seed), clock=ManualClock(), **settings)


def on_torn(disk: TornDisk) -> DirectoryStore:
    # Another seed for each opening: a process never meets the names of its predecessor.
    return DirectoryStore("/store", disk=disk, offload=inline, clock=ManualClock(), entropy=SeededEntropy(disk.writes))


def leftovers(disk: TornDisk) -> list[tuple[str, bool]]:
    return disk.scan("/store/.penstock/temporary")


@pytest.mark.parametrize(
    ("verb", "code", "kind"),
    [
        ("create", errno.ENOSPC, StorageFull),
        ("create", errno.EDQUOT, StorageFull),
        ("create", errno.EACCES, PermissionDenied),
        ("create", errno.EROFS, PermissionDenied),
        ("create", errno.EIO, Unavailable),
        ("sync_file", errno.ENOSPC, StorageFull),
        ("sync_file", errno.EIO, Unavailable),
        ("rename", errno.EIO, OutcomeUnknown),
        ("sync_directory", errno.EIO, OutcomeUnknown),
        ("sync_directory", errno.ENOSPC, OutcomeUnknown),
    ],
)
def test_a_failing_disk_is_told_by_what_it_means(verb: str, code: int, kind: type[PenstockError]) -> None:
    """Before the rename nothing was written; from the rename on nobody knows, and it is not called a failure."""

    async def promise() -> None:
        for seed in range(8):
            disk = torn(seed)
            store = on_torn(disk)
            await store.put("folder/object", b"old")
            disk.fail_next(verb, code)
            with pytest.raises(kind):
                await store.put("folder/object", b"new")
            data = (await store.get("folder/object")).data
            assert data in ((b"old", b"new") if kind is OutcomeUnknown else (b"old",))
            assert leftovers(disk) == []
            await store.put("folder/object", b"newer")
            assert (await store.get("folder/object")).data == b"newer"

    asyncio.run(promise())


def test_a_delete_that_may_not_last_is_of_unknown_outcome() -> None:
    async def promise() -> None:
        disk = torn(1)
        store = on_torn(disk)
        await store.put("object", b"body")
        disk.fail_next("sync_directory")
        with pytest.raises(OutcomeUnknown):
            await store.delete("object")

    asyncio.run(promise())


def test_a_full_disk_refuses_a_write_and_keeps_what_it_has() -> None:
    async def promise() -> None:
        disk = torn(1, capacity_bytes=100)
        store = on_torn(disk)
        await store.put("object", b"x" * 60)
        with pytest.raises(StorageFull, match="nothing was written"):
            await store.put("other", b"y" * 60)
        with pytest.raises(StorageFull):
            await store.put_if("object", b"y" * 60, version=(await store.head("object")).version)
        assert (await store.get("object")).data == b"x" * 60
        assert leftovers(disk) == []
        await store.delete("object")
        await store.put("other", b"y" * 60)

    asyncio.run(promise())


# Power loss ---------------------------------------------------------------------------------------

Write = tuple[str, str, bytes]
HISTORY: list[Write] = [
    ("put", "a/b/one", b"1" * 600),
    ("create", "a/b/two", b"2" * 1500),
    ("put", "a/b/one", b"3" * 40),
    ("update", "a/b/two", b"4" * 1500),
    ("put", "top", b"5"),
    ("delete", "a/b/one", b""),
    ("create", "a/b/one", b"6" * 700),
    ("create", "c/three", b"7" * 5000),
    ("update", "c/three", b""),
]


async def carry_out(store: DirectoryStore, write: Write) -> None:
    verb, key, body = write
    if verb == "put":
        await store.put(key, body)
    elif verb == "delete":
        await store.delete(key)
    else:
        version = None if verb == "create" else (await store.head(key)).version
        await store.put_if(key, body, version=version)


async def until_the_cut(disk: TornDisk) -> tuple[dict[str, bytes], Write | None]:
    """What was acknowledged, and the write the power loss caught, if it caught one."""
    acknowledged: dict[str, bytes] = {}
    store = on_torn(disk)
    for write in HISTORY:
        try:
            await carry_out(store, write)
        except PowerCut:
            return acknowledged, write
        acknowledged[write[1]] = write[2]
        if write[0] == "delete":
            del acknowledged[write[1]]
    return acknowledged, None


async def contents(store: DirectoryStore) -> dict[str, bytes]:
    return {key: (await store.get(key)).data for key in await listed(store)}


@pytest.mark.parametrize("after", ["power loss", "kill"])
def test_whenever_the_power_goes_what_was_acknowledged_is_there_and_nothing_is_torn(after: str) -> None:
    """Cut at every write of the history; the one under way may be there or not, as a whole."""

    async def trial(seed: int, cut: int) -> bool:
        disk = torn(seed)
        disk.cut_power(after_writes=cut)
        acknowledged, caught = await until_the_cut(disk)
        disk.crash() if after == "power loss" else disk.revive()
        store = on_torn(disk)
        found = await contents(store)
        expected = [acknowledged]
        if caught:
            verb, key, body = caught
            rest = {name: data for name, data in acknowledged.items() if name != key}
            expected.append(rest if verb == "delete" else {**rest, key: body})
        assert found in expected, f"seed {seed}, cut at write {cut}, {caught}"
        # And the store goes on from there.
        for write in HISTORY:
            if write[0] in ("put", "delete"):
                await carry_out(store, write)
        return caught is not None

    async def trials() -> None:
        for seed in range(12):
            cut = 0
            while await trial(seed, cut):
                cut += 1
            assert cut > 50

    asyncio.run(trials())


def test_a_folder_another_process_made_and_did_not_sync_is_made_durable_too() -> None:
    async def promise() -> None:
        for seed in range(20):
            disk = torn(seed)
            store = on_torn(disk)
            await store.prepare()
            # The other one made the folder and has not come to sync its name.
            disk.make_directory("/store/folder")
            await store.put("folder/object", b"body")
            disk.crash()
            assert await contents(on_torn(disk)) == {"folder/object": b"body"}

    asyncio.run(promise())


# A real full, and a real read-only, file system ---------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    mount = tmp_path / "small"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"this user cannot mount a small file system: {made.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_a_full_file_system_refuses_writes_and_serves_reads(small_disk: Path) -> None:
    async def promise(store: DirectoryStore) -> None:
        await store.put("kept", b"k" * 300_000)
        version = (await store.head("kept")).version
        for call in (store.put("large", b"x" * 900_000), store.put_if("kept", b"x" * 900_000, version=version)):
            with pytest.raises(StorageFull, match="No space left"):
                await call
        assert files(small_disk) == ["kept"]
        assert (await store.get("kept")).data == b"k" * 300_000
        await store.delete("kept")
        await store.put("large", b"x" * 900_000)

    on_directory(small_disk, promise)


def test_a_read_only_file_system_serves_reads_and_refuses_writes(small_disk: Path) -> None:
    async def promise(store: DirectoryStore) -> None:
        await store.put("object", b"body")
        remount = ["mount", "-o", "remount,ro", str(small_disk)]
        await asyncio.to_thread(subprocess.run, remount, check=True)
        for call in (store.put("object", b""), store.put("new/object", b""), store.delete("object")):
            with pytest.raises(PermissionDenied, match="Read-only"):
                await call
        assert (await store.get("object")).data == b"body"

    on_directory(small_disk, promise)

    async def reopened() -> None:
        with pytest.raises(PermissionDenied):
            await open_store(f"file://{small_disk}")
        store = await open_store(f"file://{small_disk}", read_only=True)
        assert (await store.get("object")).data == b"body"
        with pytest.raises(PermissionDenied, match="opened read-only"):
            await store.put("object", b"")
        await store.close()

    asyncio.run(reopened())
