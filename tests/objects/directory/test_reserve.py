"""A full disk drains: what does not grow its object is written from the reserve, what grows it is refused."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from penstock.errors import StorageFull
from penstock.objects import DirectoryStore
from penstock.objects.directory.reserve import RESERVE_BYTES_MIN
from penstock.testing import ManualClock, PowerCut, SeededEntropy, TornDisk, inline

CAPACITY = 3 * RESERVE_BYTES_MIN
SIZE = 10_000


def torn(seed: int = 0, **settings: Any) -> TornDisk:
    return TornDisk(entropy=SeededEntropy(seed), clock=ManualClock(), **{"capacity_bytes": CAPACITY, **settings})


def opened(disk: TornDisk) -> DirectoryStore:
    entropy = SeededEntropy(disk.writes)
    return DirectoryStore("/store", disk=disk, offload=inline, clock=ManualClock(), entropy=entropy)


async def filled(disk: TornDisk, size: int = SIZE) -> DirectoryStore:
    """A store with one object under compare-and-swap, and no room left for another byte."""
    store = opened(disk)
    await store.put_if("register", b"r" * size, version=None)
    for piece in (10_000, 1_000, 100, 10, 1):
        with suppress(StorageFull):
            for number in range(100):
                await store.put(f"filler/{piece}-{number}", b"f" * piece)
    with pytest.raises(StorageFull):
        await store.put("one/more", b"f")
    return store


async def replace(store: DirectoryStore, body: bytes) -> None:
    await store.put_if("register", body, version=(await store.head("register")).version)


def on_a_full_disk(promise: Callable[[TornDisk, DirectoryStore], Awaitable[None]]) -> None:
    async def run() -> None:
        disk = torn()
        await promise(disk, await filled(disk))

    asyncio.run(run())


def test_an_object_that_shrinks_or_keeps_its_size_is_written_again_and_again() -> None:
    async def promise(disk: TornDisk, store: DirectoryStore) -> None:
        for number in range(30):
            body = bytes([number]) * (SIZE - number // 2)
            await replace(store, body)
            assert (await store.get("register")).data == body

    on_a_full_disk(promise)


def test_an_object_that_grows_is_refused_and_the_error_says_what_still_works() -> None:
    async def promise(disk: TornDisk, store: DirectoryStore) -> None:
        with pytest.raises(StorageFull, match=r"drain what is queued; nothing was written"):
            await replace(store, b"g" * (SIZE + 1))
        with pytest.raises(StorageFull):
            await store.put_if("another", b"x", version=None)
        assert (await store.get("register")).data == b"r" * SIZE

    on_a_full_disk(promise)


def test_the_next_process_drains_a_disk_that_it_finds_full() -> None:
    async def promise(disk: TornDisk, _: DirectoryStore) -> None:
        store = opened(disk)
        # Not even room for an empty file, as where a folder has no place for one more name.
        disk.fail_next("create", errno.ENOSPC)
        await store.prepare()
        await replace(store, b"s" * SIZE)
        await store.delete_many(["filler/10000-0", "filler/10000-1"])
        await replace(store, b"g" * (SIZE + 100))

    on_a_full_disk(promise)


def test_room_that_draining_frees_is_not_given_to_writes_that_grow_before_the_reserve_is_whole() -> None:
    async def promise(disk: TornDisk, store: DirectoryStore) -> None:
        # Somebody else's bytes take the room of the object that was replaced.
        disk.fail_next("allocate", errno.ENOSPC)
        await replace(store, b"s" * SIZE)
        with pytest.raises(StorageFull):
            await store.put("one/more", b"f" * (RESERVE_BYTES_MIN // 2))
        await replace(store, b"t" * SIZE)
        await replace(store, b"u" * SIZE)

    on_a_full_disk(promise)


def test_the_reserve_grows_with_the_object_before_the_object_does() -> None:
    async def promise() -> None:
        disk = torn(capacity_bytes=8 * RESERVE_BYTES_MIN)
        store = await filled(disk, size=RESERVE_BYTES_MIN + 1)
        for _ in range(5):
            await replace(store, b"s" * (RESERVE_BYTES_MIN + 1))

    asyncio.run(promise())


def test_a_store_that_nothing_is_swapped_in_keeps_no_reserve() -> None:
    async def promise() -> None:
        disk = torn()
        await opened(disk).put("object", b"body")
        with pytest.raises(FileNotFoundError):
            disk.stat("/store/.penstock/reserve")

    asyncio.run(promise())


def test_a_disk_too_small_for_a_reserve_does_without() -> None:
    async def promise() -> None:
        store = opened(torn(capacity_bytes=1000))
        await store.put_if("register", b"r" * 400, version=None)
        await replace(store, b"s" * 500)
        with pytest.raises(StorageFull):
            await replace(store, b"t" * 501)

    asyncio.run(promise())


@pytest.mark.slow
@pytest.mark.parametrize("after", ["power loss", "kill"])
def test_whenever_the_power_goes_on_a_full_disk_the_object_is_whole_and_draining_goes_on(after: str) -> None:
    """Cut at every write of a few replacements; then drain on, which must not harm what the reserve became."""

    async def trial(seed: int, cut: int) -> bool:
        disk = torn(seed)
        store = await filled(disk)
        bodies = [bytes([number]) * (SIZE - number) for number in range(1, 5)]
        last, under_way, was_cut = b"r" * SIZE, b"", False
        disk.cut_power(after_writes=cut)
        try:
            for under_way in bodies:
                await replace(store, under_way)
                last = under_way
        except PowerCut:
            was_cut = True
        disk.crash() if after == "power loss" else disk.revive()
        store = opened(disk)
        found = (await store.get("register")).data
        assert found in (last, under_way), f"seed {seed}, cut {cut}"
        for number in range(3):
            body = bytes([100 + number]) * (len(found) - number)
            await replace(store, body)
            assert (await store.get("register")).data == body, f"seed {seed}, cut {cut}"
        return was_cut

    async def trials() -> None:
        for seed in range(8 if after == "power loss" else 2):
            cut = 0
            while await trial(seed, cut):
                cut += 1
            assert cut > 20

    asyncio.run(trials())
