"""Segments as Parquet files: whole or not there, the same after a crash, and never another's overwritten."""

from __future__ import annotations

import asyncio
import errno
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.relay.edge import filled, opened, rows, torn

from penstock.disk import RealDisk
from penstock.errors import InvalidInput, StorageFull
from penstock.quiver import Bundle
from penstock.relay import ParquetOutlet, ParquetOutletConfig, Relay
from penstock.relay.outlets.outlet import Delivered
from penstock.testing import PowerCut, SeededEntropy, Simulation, TornDisk, inline, simulate

FOLDER = "/files"


def files(disk: Any, folder: str = FOLDER) -> dict[str, bytes]:
    return {name: disk.read(f"{folder}/{name}")[0] for name, _ in disk.scan(folder)}


def values(found: dict[str, bytes], column: str = "n") -> list[Any]:
    return [
        value
        for name in sorted(found)
        for value in pq.read_table(pa.BufferReader(found[name])).column(column).to_pylist()
    ]


async def relay(
    simulation: Simulation, disk: Any, config: ParquetOutletConfig | None = None, offload: Any = inline
) -> Any:
    """Carry everything that waits; the state of the quiver afterwards."""
    store = await opened(disk, clock=simulation.clock, offload=offload)
    outlet = ParquetOutlet(FOLDER, config, disk=disk, offload=offload)
    doors = {"clock": simulation.clock, "entropy": SeededEntropy(1)}
    await Relay(store, "parquet", outlet, **doors).run(until_empty=True)  # type: ignore[arg-type]
    state = store.state
    await store.close()
    return state


async def prepared(simulation: Simulation, segments: list[list[Bundle]]) -> TornDisk:
    disk = torn(simulation.clock)
    store = await opened(disk, clock=simulation.clock)
    await filled(store, segments, "parquet")
    await store.close()
    return disk


def test_every_slot_and_schema_has_its_file_and_a_large_one_several() -> None:
    async def main(simulation: Simulation) -> None:
        wide = Bundle({"logs": pa.record_batch({"n": pa.array([7] * 3, pa.int64()), "more": ["x"] * 3})})
        other = Bundle({"a/b ü": pa.record_batch({"n": pa.array([8], pa.int64())})})
        disk = await prepared(simulation, [[rows(1, 64), wide, other]])
        await relay(simulation, disk, ParquetOutletConfig(file_bytes=128))
        found = files(disk)
        assert sorted(values(found)) == [1] * 64 + [7] * 3 + [8]
        assert len(found) == 4 + 1 + 1
        assert any("a%2Fb%20%C3%BC" in name for name in found)
        assert all(name.startswith("quiver-") and name.endswith(".parquet") for name in found)

    simulate(main, 1)


def test_a_power_cut_at_any_write_leaves_whole_files_and_a_repeat_gives_the_same_bytes() -> None:
    async def whole(simulation: Simulation) -> dict[str, bytes]:
        disk = await prepared(simulation, [[rows(1, 32)], [rows(2, 32)]])
        await relay(simulation, disk, ParquetOutletConfig(file_bytes=128))
        return files(disk)

    expected = simulate(whole, 1)

    async def cut(simulation: Simulation, step: int) -> bool:
        disk = await prepared(simulation, [[rows(1, 32)], [rows(2, 32)]])
        disk.cut_power(after_writes=step)
        dark = asyncio.Event()

        async def offload(work: Any, /, *args: Any) -> Any:
            try:
                return work(*args)
            except PowerCut:
                dark.set()
                return await asyncio.get_running_loop().create_future()

        process = simulation.start("relay", relay(simulation, disk, ParquetOutletConfig(file_bytes=128), offload))
        waits = [asyncio.create_task(process.join()), asyncio.create_task(dark.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        process.crash()
        if not dark.is_set():
            return False
        disk.crash()
        left = files(disk) if ("files", True) in disk.scan("/") else {}
        for name, body in left.items():
            assert name.endswith(".tmp") or body == expected[name]
        await relay(simulation, disk, ParquetOutletConfig(file_bytes=128))
        assert files(disk) == expected
        return True

    steps = 0
    while simulate(partial(cut, step=steps), 1):
        steps += 1
    assert steps > 20


def test_a_failed_sync_is_never_taken_for_durable() -> None:
    async def main(simulation: Simulation) -> None:
        for verb in ("create", "sync_file", "rename", "sync_directory"):
            for code in (errno.EIO, errno.ENOSPC):
                disk = await prepared(simulation, [[rows(1)]])
                store = await opened(disk, clock=simulation.clock)
                outlet = ParquetOutlet(FOLDER, disk=disk, offload=inline)
                delivery = None
                await store.register("parquet")
                delivery = await store.next("parquet")
                assert delivery is not None
                disk.make_directory(FOLDER)
                disk.fail_next(verb, code)
                with pytest.raises(Exception, match="was not written"):
                    await outlet.send(delivery)
                await outlet.send(delivery)
                disk.crash()
                assert values(files(disk)) == [1] * 16

    simulate(main, 1)


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    async def main(simulation: Simulation) -> None:
        disk, folder = torn(simulation.clock), tmp_path / "files"
        store = await opened(disk, clock=simulation.clock)
        outlet = ParquetOutlet(str(folder), disk=RealDisk(), offload=inline)
        doors = {"clock": simulation.clock, "entropy": SeededEntropy(1)}
        for number in (1, 2):
            await filled(store, [[rows(number, 4)]], "parquet")
            async with asyncio.timeout(600):
                await Relay(store, "parquet", outlet, **doors).run(until_empty=True)  # type: ignore[arg-type]
            assert len(list(folder.iterdir())) == 1
            shutil.rmtree(folder)
        await store.close()

    simulate(main, 1)


def test_a_quiver_that_was_begun_anew_overwrites_nothing() -> None:
    async def main(simulation: Simulation) -> None:
        first = await prepared(simulation, [[rows(1)]])
        await relay(simulation, first)
        await simulation.clock.sleep(1)
        second = await prepared(simulation, [[rows(2)]])
        await relay(simulation, second)
        assert not set(files(first)) & set(files(second))

    simulate(main, 1)


@pytest.mark.parametrize("call", ["create", "sync_file"])
def test_a_file_that_does_not_fit_the_disk_leaves_no_beginning_there(call: str) -> None:
    async def main(simulation: Simulation) -> None:
        disk = await prepared(simulation, [[rows(1)]])
        store = await opened(disk, clock=simulation.clock)
        await store.register("parquet")
        delivery = await store.next("parquet", 0.0)
        assert delivery is not None
        outlet = ParquetOutlet(FOLDER, disk=disk, offload=inline)
        disk.fail_next(call, errno.ENOSPC)
        with pytest.raises(StorageFull):
            await outlet.send(delivery)
        assert files(disk) == {}
        assert await outlet.send(delivery) == Delivered()
        await delivery.ack()
        assert values(files(disk)) == [1] * 16
        await store.close()

    simulate(main, 1)


def test_what_parquet_cannot_hold_is_a_dead_letter() -> None:
    async def main(simulation: Simulation) -> None:
        odd = pa.array([1, 1, 2], pa.int64())
        encoded: Any = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), odd)
        bundle = Bundle({"odd": pa.record_batch({"n": encoded})})
        disk = await prepared(simulation, [[bundle], [rows(2)]])
        state = await relay(simulation, disk)
        assert sorted(state.subscriptions["parquet"].rejected) == [1]
        assert set(values(files(disk))) == {2}

    simulate(main, 1)


def test_on_a_real_disk_others_read_the_files(tmp_path: Path) -> None:
    async def main(simulation: Simulation) -> None:
        store = await opened(RealDisk(), clock=simulation.clock, path=f"{tmp_path}/quiver")
        await filled(store, [[rows(number)] for number in range(3)], "parquet")
        outlet = ParquetOutlet(f"{tmp_path}/files", offload=inline)
        (tmp_path / "files").mkdir()
        (tmp_path / "files" / "quiver-1.parquet.tmp").write_bytes(b"left by a crash")
        (tmp_path / "files" / "notes.tmp").write_bytes(b"somebody else's")
        doors = {"clock": simulation.clock, "entropy": SeededEntropy(1)}
        await Relay(store, "parquet", outlet, **doors).run(until_empty=True)  # type: ignore[arg-type]
        await store.close()

    simulate(main, 1)
    table = pa.concat_tables(pq.read_table(path) for path in sorted((tmp_path / "files").glob("*.parquet")))
    assert table.column("n").to_pylist() == [0] * 16 + [1] * 16 + [2] * 16
    assert sorted(path.name for path in (tmp_path / "files").glob("*.tmp")) == ["notes.tmp"]


@pytest.mark.parametrize("name", ["", "a/b", "..", "é"])
def test_a_name_that_no_file_should_begin_with_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="name = "):
        ParquetOutletConfig(name=name)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b""], pa.binary(0)),
        pa.array([[]], pa.list_(pa.int64(), 0)),
        pa.array([[[]]], pa.list_(pa.list_(pa.int64(), 0))),
    ],
    ids=["no bytes", "no elements", "no elements inside a list"],
)
def test_what_parquet_cannot_hold_is_a_dead_letter_and_holds_up_nothing(column: Any) -> None:
    """Arrow calls one of these an error of the disk, and writes the others as files that nobody can read."""

    async def main(simulation: Simulation) -> None:
        odd = Bundle({"logs": pa.record_batch({"n": column})})
        disk = await prepared(simulation, [[odd], [rows(2, 3)]])
        state = await relay(simulation, disk)
        assert state.subscriptions["parquet"].rejected.keys() == {1}
        assert values(files(disk)) == [2] * 3

    simulate(main, 1)


def test_metadata_of_the_callers_own_never_makes_a_file_unreadable() -> None:
    async def main(simulation: Simulation) -> None:
        metadata = {b"ARROW:schema": b"none of Arrow's", b"owner": b"somebody"}
        batch = pa.record_batch({"n": pa.array([1], pa.int64())}).replace_schema_metadata(metadata)
        disk = await prepared(simulation, [[Bundle({"logs": batch})]])
        await relay(simulation, disk)
        assert values(files(disk)) == [1]
        (body,) = files(disk).values()
        assert pq.read_schema(pa.BufferReader(body)).metadata == {b"owner": b"somebody"}

    simulate(main, 1)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_to_a_folder_is_as_good_as_the_folder(tmp_path: Path, is_there: bool) -> None:
    target, link = tmp_path / "disk", tmp_path / "files"
    if is_there:
        target.mkdir()
    link.symlink_to(target)

    async def main(simulation: Simulation) -> None:
        disk = await prepared(simulation, [[rows(1, 3)]])
        store = await opened(disk, clock=simulation.clock)
        await Relay(store, "parquet", ParquetOutlet(str(link), offload=inline), clock=simulation.clock).run(
            until_empty=True
        )
        await store.close()

    simulate(main, 1)
    assert values(files(RealDisk(), str(target))) == [1] * 3


@pytest.mark.parametrize("folder", ["", "a\0b"])
def test_what_is_no_folder_is_refused(folder: str) -> None:
    with pytest.raises(InvalidInput, match="no folder"):
        ParquetOutlet(folder)
