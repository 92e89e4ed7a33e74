"""The core of the directory store on disks that fail: full, read-only, torn by a power loss."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.disk import FileStat, RealDisk
from penstock.errors import NotFound, OutcomeUnknown, PenstockError, PermissionDenied, StorageFull, Unavailable
from penstock.objects import DirectoryStore, open_store
from penstock.testing import ManualClock, PowerCut, SeededEntropy, TornDisk, inline


async def listed(store: DirectoryStore) -> list[str]:
    return [meta.key async for page in store.list() for meta in page]


def on_directory(root: Path, promise: Callable[[DirectoryStore], Awaitable[None]]) -> None:
    async def run() -> None:
        store = DirectoryStore(str(root))
        try:
            await promise(store)
        finally:
            await store.close()

    asyncio.run(run())


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


def test_a_delete_repeated_after_a_failed_sync_lasts() -> None:
    """The object is gone from sight by then, but not yet from the disk."""

    async def promise() -> None:
        for seed in range(8):
            disk = torn(seed)
            store = on_torn(disk)
            await store.put("folder/object", b"body")
            disk.fail_next("sync_directory")
            with pytest.raises(OutcomeUnknown):
                await store.delete("folder/object")
            await store.delete("folder/object")
            disk.crash()
            with pytest.raises(NotFound):
                await on_torn(disk).head("folder/object")

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


@pytest.mark.slow
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
        # A kill leaves all that was written: its seed decides names and stamps alone.
        for seed in range(12 if after == "power loss" else 2):
            cut = 0
            while await trial(seed, cut):
                cut += 1
            assert cut > 40

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
        assert await listed(store) == ["kept"]
        assert [*(small_disk / ".penstock/temporary").iterdir()] == []
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


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_all_that_a_store_makes_is_its_owners_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:

        async def write() -> None:
            store = await open_store(f"file://{tmp_path}/new/store")
            await store.put("a/b", b"secret")
            await store.put_if("a/c", b"secret", version=None)
            await store.close()

        asyncio.run(write())
    finally:
        os.umask(before)
    made = list(tmp_path.rglob("*"))
    assert {path.name for path in made} >= {"new", "store", "a", "b", "c", ".penstock", "locks", "temporary", "reserve"}
    assert {oct(path.stat().st_mode & 0o777) for path in made if path.is_dir()} == {"0o700"}
    assert {oct(path.stat().st_mode & 0o777) for path in made if path.is_file()} == {"0o600"}


class LockedDisk(RealDisk):
    """Refuses to show what is in a folder called `locked`, and to touch what is in one called `closed`."""

    def scan(self, path: str) -> list[tuple[str, bool]]:
        if path.endswith("/locked"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return super().scan(path)

    def stat(self, path: str) -> FileStat:
        if "/closed/" in path:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return super().stat(path)


def test_a_listing_ends_at_a_folder_that_may_not_be_looked_into_or_goes_on_without_it_and_tells(tmp_path: Path) -> None:
    for key in ("a.txt", "closed/b.txt", "closed/c.txt", "locked/d.txt", "open/locked/e.txt", "open/f.txt"):
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_text("x")
    passed_over: set[str] = set()

    async def run() -> list[str]:
        with pytest.raises(PermissionDenied):
            await listed(DirectoryStore(str(tmp_path), disk=LockedDisk(), offload=inline))
        return await listed(
            DirectoryStore(str(tmp_path), disk=LockedDisk(), offload=inline, unreadable=passed_over.add)
        )

    assert asyncio.run(run()) == ["a.txt", "open/f.txt"]
    assert passed_over == {"closed/", "locked/", "open/locked/"}


def test_a_store_that_may_not_be_looked_into_has_no_listing(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir()
    store = DirectoryStore(str(tmp_path / "locked"), disk=LockedDisk(), offload=inline, unreadable=lambda _: None)
    with pytest.raises(PermissionDenied):
        asyncio.run(listed(store))
