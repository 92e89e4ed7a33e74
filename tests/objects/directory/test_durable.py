"""What is visible is not yet durable: on a directory, a proof takes a sync that came after the write and succeeded."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.disk import RealDisk
from penstock.errors import NotFound, OutcomeUnknown, PenstockError, Unavailable
from penstock.objects import DirectoryStore, Object, ObjectStore, Register, RegisterPolicy, Stamped, StampedFormat
from penstock.objects.register.stamp import BytesCodec
from penstock.testing import ManualClock, SeededEntropy, Simulation, TornDisk, inline, simulate
from penstock.testing.storage.hostile_stores import PassingStore

SEEDS = 200
KEY = "folder/register"
SeenAs = Callable[[ObjectStore], ObjectStore]


def on_torn(disk: TornDisk, simulation: Simulation) -> DirectoryStore:
    return DirectoryStore(
        "/store",
        disk=disk,
        offload=inline,
        clock=simulation.clock,
        entropy=simulation.entropy.fork(f"store at {disk.writes}"),
    )


def register_in(store: ObjectStore, simulation: Simulation, deadline_seconds: float = 5.0) -> Register[Stamped[bytes]]:
    return Register(
        store,
        KEY,
        StampedFormat(BytesCodec()),
        policy=RegisterPolicy(deadline_seconds=deadline_seconds, attempt_seconds=1.0),
        clock=simulation.clock,
        entropy=simulation.entropy.fork("register"),
    )


def write(name: bytes) -> Callable[[Stamped[bytes]], Stamped[bytes]]:
    """Writes nothing where the name is there already, as an idempotent change does."""
    return lambda value: value.map(lambda old: old if name in old else old + name)


class CredulousStore(PassingStore):
    """Takes what it can see for what will last."""

    async def get_durable(self, key: str) -> Object:
        return await self._inner.get(key)


async def _after_the_power_loss(disk: TornDisk, simulation: Simulation) -> bytes:
    disk.heal()
    disk.crash()
    try:
        return (await register_in(on_torn(disk, simulation), simulation).read()).payload
    except NotFound:
        return b""


def lost_of_200(damage: Callable[[TornDisk], None], seen_as: SeenAs = lambda store: store) -> int:
    """In how many worlds an update that was confirmed over a faulty sync is gone after a power loss."""

    async def confirmed_and_lost(simulation: Simulation) -> bool:
        disk = TornDisk(entropy=simulation.entropy.fork("disk"), clock=simulation.clock)
        register = register_in(seen_as(on_torn(disk, simulation)), simulation)
        await register.update(write(b"a"))
        damage(disk)
        try:
            await register.update(write(b"b"))
        except OutcomeUnknown:
            return False
        return b"b" not in await _after_the_power_loss(disk, simulation)

    return sum(simulate(confirmed_and_lost, seed) for seed in range(SEEDS))


def fail_once(disk: TornDisk) -> None:
    disk.fail_next("sync_directory")


def fail_thrice(disk: TornDisk) -> None:
    for _ in range(3):
        disk.fail_next("sync_directory", errno.EIO)


def hang_once(disk: TornDisk) -> None:
    disk.hang_next("sync_directory")


DAMAGES = [fail_once, fail_thrice, hang_once]


@pytest.mark.cases(quick=1)
@pytest.mark.parametrize("damage", DAMAGES)
def test_an_update_confirmed_over_a_failed_or_slow_sync_survives_a_power_loss(
    damage: Callable[[TornDisk], None],
) -> None:
    assert lost_of_200(damage) == 0


@pytest.mark.cases(quick=2)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_store_that_takes_visible_for_durable_is_found_out(damage: Callable[[TornDisk], None]) -> None:
    assert lost_of_200(damage, CredulousStore) > SEEDS // 10


def test_a_disk_that_never_syncs_leaves_the_outcome_unknown() -> None:
    async def main(simulation: Simulation) -> None:
        disk = TornDisk(entropy=simulation.entropy, clock=simulation.clock)
        register = register_in(on_torn(disk, simulation), simulation)
        await register.update(write(b"a"))
        for _ in range(1000):
            disk.fail_next("sync_directory")
        with pytest.raises(OutcomeUnknown):
            await register.update(write(b"b"))

    simulate(main, 1)


def _found_by_the_next(seen_as: SeenAs) -> int:
    """Worlds in which a process that finds the change already made, by one that failed to sync it, confirms
    it, and in which it is then lost."""

    async def confirmed_and_lost(simulation: Simulation) -> bool:
        disk = TornDisk(entropy=simulation.entropy.fork("disk"), clock=simulation.clock)
        first = register_in(on_torn(disk, simulation), simulation, deadline_seconds=0.5)
        await first.update(write(b"a"))
        disk.hang_next("sync_directory")
        with pytest.raises(OutcomeUnknown):
            await first.update(write(b"b"))
        disk.fail_next("sync_directory")
        second = register_in(seen_as(on_torn(disk, simulation)), simulation)
        await second.update(write(b"b"))
        return b"b" not in await _after_the_power_loss(disk, simulation)

    return sum(simulate(confirmed_and_lost, seed) for seed in range(SEEDS))


def test_a_change_that_is_found_already_made_is_confirmed_once_it_lasts() -> None:
    assert _found_by_the_next(lambda store: store) == 0


def test_a_change_found_already_made_and_not_made_to_last_is_noticed() -> None:
    assert _found_by_the_next(CredulousStore) > SEEDS // 10


def test_a_durable_read_shows_what_will_be_there_after_a_power_loss() -> None:
    async def main(simulation: Simulation) -> bool:
        disk = TornDisk(entropy=simulation.entropy.fork("disk"), clock=simulation.clock)
        first = register_in(on_torn(disk, simulation), simulation, deadline_seconds=0.5)
        await first.update(write(b"a"))
        disk.hang_next("sync_directory")
        with pytest.raises(OutcomeUnknown):
            await first.update(write(b"b"))
        second = register_in(on_torn(disk, simulation), simulation)
        shown = (await second.read(durable=True)).payload
        return shown == await _after_the_power_loss(disk, simulation)

    assert all(simulate(main, seed) for seed in range(SEEDS))


class SlowDisk(RealDisk):
    """Syncs no folder until it is told to."""

    def __init__(self) -> None:
        self.synced = threading.Event()
        self.synced.set()

    def sync_directory(self, path: str) -> None:
        self.synced.wait()
        super().sync_directory(path)


def test_a_sync_slower_than_an_attempt_is_waited_for_or_told_and_reads_go_on(tmp_path: Path) -> None:
    async def promise() -> None:
        disk = SlowDisk()
        store = DirectoryStore(str(tmp_path), disk=disk)
        policy = RegisterPolicy(deadline_seconds=0.5, attempt_seconds=0.1)
        hasty = Register(store, KEY, StampedFormat(BytesCodec()), policy=policy)
        await hasty.update(write(b"a"))
        disk.synced.clear()
        try:
            with pytest.raises(OutcomeUnknown):
                await hasty.update(write(b"b"))
            # Visible, though not yet durable; and no thread of the reads waits for the disk.
            assert (await hasty.read()).payload == b"ab"
        finally:
            disk.synced.set()
        assert (await hasty.read(durable=True)).payload == b"ab"
        await store.close()

    asyncio.run(promise())


# The store itself ---------------------------------------------------------------------------------


def on_each_torn_disk(promise: Callable[[TornDisk, DirectoryStore], Awaitable[None]]) -> None:
    async def run() -> None:
        for seed in range(20):
            disk = TornDisk(entropy=SeededEntropy(seed), clock=ManualClock())
            await promise(disk, _opened(disk))

    asyncio.run(run())


def _opened(disk: TornDisk) -> DirectoryStore:
    entropy = SeededEntropy(disk.writes)
    return DirectoryStore("/store", disk=disk, offload=inline, clock=ManualClock(), entropy=entropy)


async def _body(disk: TornDisk, key: str) -> bytes | None:
    disk.crash()
    try:
        return (await _opened(disk).get(key)).data
    except NotFound:
        return None


def test_what_is_read_durably_after_a_failed_sync_is_written_anew_and_lasts() -> None:
    async def promise(disk: TornDisk, store: DirectoryStore) -> None:
        disk.fail_next("sync_directory")
        with pytest.raises(PenstockError):
            await store.put("object", b"body")
        await store.put("object", b"body")
        disk.fail_next("sync_directory")
        with pytest.raises(OutcomeUnknown):
            await store.put("object", b"newer")
        seen = (await store.get("object")).meta.version
        found = await store.get_durable("object")
        assert found.data == b"newer"
        assert found.meta.version != seen
        assert (await store.head("object")).version == found.meta.version
        assert await _body(disk, "object") == b"newer"

    on_each_torn_disk(promise)


def test_what_another_process_wrote_is_made_durable_by_who_must_rely_on_it() -> None:
    async def promise(disk: TornDisk, store: DirectoryStore) -> None:
        await store.put("object", b"body")
        another = _opened(disk)
        await another.prepare()
        disk.hang_next("sync_directory")
        put = asyncio.create_task(another.put("object", b"of another"))
        await asyncio.sleep(0)
        assert (await store.get_durable("object")).data == b"of another"
        assert await _body(disk, "object") == b"of another"
        put.cancel()

    on_each_torn_disk(promise)


def test_what_this_store_made_durable_is_not_written_again(tmp_path: Path) -> None:
    async def promise() -> None:
        store = DirectoryStore(str(tmp_path), offload=inline)
        written = await store.put("object", b"body")
        assert (await store.get_durable("object")).meta == written
        with pytest.raises(NotFound):
            await store.get_durable("missing")

    asyncio.run(promise())


def test_a_folder_whose_name_could_not_be_synced_is_made_anew() -> None:
    async def promise(disk: TornDisk, store: DirectoryStore) -> None:
        await store.prepare()
        disk.fail_next("sync_directory")
        with pytest.raises(Unavailable):
            await store.put("folder/object", b"body")
        await store.put("folder/object", b"body")
        assert await _body(disk, "folder/object") == b"body"

    on_each_torn_disk(promise)


def test_a_folder_that_another_process_failed_to_sync_is_not_there_for_the_next() -> None:
    async def promise(disk: TornDisk, store: DirectoryStore) -> None:
        await store.prepare()
        disk.fail_next("sync_directory")
        with pytest.raises(Unavailable):
            await store.put("folder/object", b"body")
        await _opened(disk).put("folder/object", b"body")
        assert await _body(disk, "folder/object") == b"body"

    on_each_torn_disk(promise)
