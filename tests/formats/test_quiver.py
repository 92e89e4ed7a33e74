"""Bytes of every released version of the quiver's files. They lie on disks at the edge, so they never change."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa

from penstock.disk import RealDisk
from penstock.quiver import Bundle, Quiver, QuiverConfig, RetentionConfig, SegmentConfig, WalConfig, WriteMode
from penstock.quiver.inspection import inspect_store, stored_tables
from penstock.quiver.segment.format import decode_meta, encode_meta
from penstock.testing import ManualClock, SeededEntropy, TornDisk, inline

GOLDEN = Path(__file__).parent / "golden" / "quiver" / "v1"
CONFIG = QuiverConfig(
    segment=SegmentConfig(target_size=1 << 20),
    wal=WalConfig(max_size=64 << 10, rotation_size=16 << 10, write_mode=WriteMode.BUFFERED),
    retention=RetentionConfig(size_cap=1 << 24),
    ack_log_file_size=32 << 10,
)
FILES = (
    "wal/00000000000000000001.wal",
    "segments/00000000000000000002-0.arrow",
    "segments/00000000000000000002.meta",
    "ack/00000000000000000001.log",
)


def bundle(number: int, **more: object) -> Bundle:
    batch = pa.record_batch({"n": pa.array([number] * 4, pa.int64()), **more})
    return Bundle({"logs": batch}, signal="logs", identity=f"b{number}", event_time_ns=(number, number + 1))


async def written() -> dict[str, bytes]:
    """One segment that was acknowledged and is gone, one that waits, and three bundles that are only in the log."""
    disk = TornDisk(entropy=SeededEntropy(0), clock=ManualClock())
    store = await Quiver.open(
        "/store", CONFIG, disk=disk, clock=ManualClock(), entropy=SeededEntropy(5), offload=inline
    )
    await store.register("s")
    for number in (1, 2):
        await store.ingest(bundle(number))
        await store.flush()
    delivery = await store.next("s", 0.0)
    assert delivery is not None
    await delivery.ack()
    await store.sweep()
    await store.ingest(bundle(3, word=pa.array(["x", "y", "x", None]).dictionary_encode()))
    await store.ingest_many([bundle(4), bundle(5)])
    return {name: disk.read(f"/store/instance-000/{name}")[0] for name in FILES}


def test_the_files_are_still_written_to_the_byte() -> None:
    for name, body in asyncio.run(written()).items():
        assert body == (GOLDEN / name).read_bytes(), name


def test_a_released_store_is_still_read(tmp_path: Path) -> None:
    home = tmp_path / "store" / "instance-000"
    for folder in ("wal", "segments", "ack", "aside"):
        (home / folder).mkdir(parents=True)
    for name in FILES:
        (home / name).write_bytes((GOLDEN / name).read_bytes())
    (report,) = inspect_store(RealDisk(), str(tmp_path / "store"), check_payloads=True)
    assert report.damage == []
    assert report.waiting_bundles == 3
    assert report.state.subscriptions["s"].done.mark == 1
    (tables,) = stored_tables(RealDisk(), str(tmp_path / "store")).values()
    assert [table.column("n")[0].as_py() for table in tables] == [2, 3, 4, 5]
    assert tables[1].column("word").to_pylist() == ["x", "y", "x", None]


def test_the_metadata_is_still_written_to_the_byte() -> None:
    name = FILES[2]
    body = (GOLDEN / name).read_bytes()
    assert encode_meta(decode_meta(body, name.rpartition("/")[2])) == body
