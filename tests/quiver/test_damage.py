"""A flipped bit or a cut at every byte of small files: the store opens, loses exactly what was hit, and says so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec
import pytest
from tests.quiver.worlds import PATH, bundle, drained, opened, small, torn, with_mode

from penstock.errors import Corrupt
from penstock.quiver import Quiver, QuiverConfig, SubscriberConfig, WriteMode
from penstock.quiver.acks.ack_records import replay_ack_files
from penstock.quiver.acks.ack_state import SealRecord
from penstock.quiver.inspection import inspect_store
from penstock.quiver.log.frames import BLOCK_BYTES, Frame, FrameKind, read_header, scan_frames
from penstock.quiver.segment.format import decode_meta
from penstock.quiver.wal.replay import replay_wal_files
from penstock.testing import ManualClock, SeededEntropy, TornDisk

HOME = f"{PATH}/instance-000"
# Buffered, so that records follow each other without padding, and files are short enough for every byte.
LARGE = with_mode(
    replace(small(), segment=replace(small().segment, target_size=1 << 20, max_open_duration=1e6)), WriteMode.BUFFERED
)
# Opening a store costs milliseconds, reading its files microseconds: every byte is read, every so many is opened.
OPENED_EVERY = 17


@dataclass
class Frozen:
    """A store's files, to be damaged again and again."""

    files: dict[str, bytes]

    def thawed(self, **changed: bytes | None) -> TornDisk:
        disk = torn()
        for folder in (PATH, HOME, *(f"{HOME}/{name}" for name in ("wal", "segments", "ack", "aside"))):
            disk.make_directory(folder)
        for path, body in {**self.files, **changed}.items():
            if body is not None:
                disk.create(path, body)
        return disk


def frozen(disk: TornDisk) -> Frozen:
    files = {}
    for folder in ("wal", "segments", "ack"):
        for name, _ in disk.scan(f"{HOME}/{folder}"):
            files[f"{HOME}/{folder}/{name}"] = disk.read(f"{HOME}/{folder}/{name}")[0]
    return Frozen(files)


async def made(bundles: int, config: QuiverConfig = LARGE, *, finalise: bool = False, acked: int = 0) -> Frozen:
    disk = torn()
    store = await opened(disk, config)
    await store.register("s")
    for number in range(bundles):
        await store.ingest(bundle(number))
        if finalise:
            await store.flush()
    for _ in range(acked):
        delivery = await store.next("s", 0.0)
        assert delivery is not None
        await delivery.ack()
    await asyncio.sleep(0)
    return frozen(disk)


def flips(body: bytes, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Each byte with one bit changed; of the zeros that fill the first block only the ends."""
    for at in (at for at in range(start, end) if not 100 < at < BLOCK_BYTES - 10):
        yield at, body[:at] + bytes([body[at] ^ (1 << at % 8)]) + body[at + 1 :]


async def came_out(disk: TornDisk) -> tuple[Quiver, list[int]]:
    store = await opened(disk, clock=ManualClock())
    await store.register("s")
    await store.flush()
    return store, await drained(store)


def test_a_flipped_bit_at_every_byte_of_the_log_loses_the_record_it_hits() -> None:
    async def scenario() -> None:
        store = await made(4)
        (path,) = [path for path in store.files if path.endswith("1.wal") and "/wal/" in path]
        body = store.files[path]
        header = read_header(memoryview(body))
        assert header is not None
        frames = [one for one in scan_frames(memoryview(body), header[0]) if isinstance(one, Frame)]
        assert len(frames) == 4
        for at, damaged in flips(body, 0, frames[-1].end):
            hit = [number for number, frame in enumerate(frames) if frame.offset <= at < frame.end]
            replay = replay_wal_files([(1, memoryview(damaged))], 0)
            left = [frame.sequence - 1 for frame in replay.frames]
            lost = [number for number in range(4) if number not in left]
            assert lost in ([], hit), at
            # What later frames vouch for is told exactly; the last record's end may be an interrupted write.
            assert replay.lost == [(number + 1, number + 2) for number in lost if number != 3], at
            assert bool(lost) <= bool(replay.files[0].bad), at
            if at % OPENED_EVERY == 0:
                disk = store.thawed(**{path: damaged})
                damage = inspect_store(disk, PATH)[0].damage
                opened_store, found = await came_out(disk)
                assert found == left, at
                assert opened_store.findings.lost_bundles == replay.lost
                assert damage or not lost, at

    asyncio.run(scenario())


def test_a_log_cut_at_every_byte_keeps_the_records_before_the_cut() -> None:
    async def scenario() -> None:
        store = await made(3)
        (path,) = [path for path in store.files if "/wal/" in path and "spare" not in path]
        body = store.files[path]
        header = read_header(memoryview(body))
        assert header is not None
        ends = [one.end for one in scan_frames(memoryview(body), header[0]) if isinstance(one, Frame)]
        for size in (0, 1, 47, 48, BLOCK_BYTES - 1, *range(BLOCK_BYTES, ends[-1] + 1, 5)):
            _, found = await came_out(store.thawed(**{path: body[:size]}))
            assert found == list(range(len(found)))
            assert len(found) in (sum(end <= size for end in ends), sum(end - 8 < size for end in ends)), size

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", [".meta", ".arrow"])
def test_a_flipped_bit_at_every_byte_of_a_segment_loses_that_segment(kind: str) -> None:
    async def scenario() -> None:
        store = await made(3, finalise=True)
        path = next(path for path in store.files if path.endswith(kind) and f"{2:020d}" in path)
        body = store.files[path]
        step = 1 if kind == ".meta" else OPENED_EVERY
        for at, damaged in list(flips(body, 0, len(body)))[::step]:
            if kind == ".meta":
                with pytest.raises(Corrupt):
                    decode_meta(damaged, path.rpartition("/")[2])
                if at % OPENED_EVERY:
                    continue
            disk = store.thawed(**{path: damaged})
            (report,) = inspect_store(disk, PATH, check_payloads=True)
            assert report.damage, at
            repaired = await opened(disk)
            await repaired.register("s")
            await repaired.repair()
            assert repaired.findings.lost_segments == [2], at
            assert await drained(repaired) == [0, 2]
            assert repaired.state.subscriptions["s"].done.mark == 3
            await repaired.close()
            assert inspect_store(disk, PATH, check_payloads=True)[0].damage == [], at

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", [".meta", ".arrow"])
def test_a_segment_file_cut_or_gone_loses_that_segment(kind: str) -> None:
    async def scenario() -> None:
        store = await made(3, finalise=True)
        path = next(path for path in store.files if path.endswith(kind) and f"{2:020d}" in path)
        body = store.files[path]
        for size in (None, *range(0, len(body), max(1, len(body) // 40))):
            disk = store.thawed(**{path: None if size is None else body[:size]})
            repaired = await opened(disk)
            await repaired.register("s")
            await repaired.repair()
            assert await drained(repaired) == [0, 2], size
            assert repaired.findings.lost_segments == [2]
            assert repaired.state.next_segment_seq == 4

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_flipped_bit_at_every_byte_of_ack_log_repeats_at_most_what_it_hits_and_loses_nothing() -> None:
    """An acknowledgement that cannot be read is a delivery more. The numbers go on all the same."""

    async def scenario() -> None:
        store = await made(4, finalise=True, acked=2)
        newest = max(path for path in store.files if path.endswith(".log") and "spare" not in path)
        body = store.files[newest]
        used = len(body.rstrip(b"\0")) + 8
        number = int(newest.rpartition("/")[2][:20])
        older = [
            (int(path.rpartition("/")[2][:20]), memoryview(data))
            for path, data in sorted(store.files.items())
            if path.endswith(".log") and "spare" not in path and path != newest
        ]
        for at, damaged in flips(body, 0, used):
            segments = [(seq, seq) for seq in range(1, 5)]
            state = replay_ack_files([*older, (number, memoryview(damaged))], segments).state
            assert [state.outstanding[seq] >= set(state.subscriptions) for seq in (3, 4)] == [True, True], at
            assert state.next_segment_seq == 5, at
            if at % OPENED_EVERY == 0:
                opened_store, found = await came_out(store.thawed(**{newest: damaged}))
                assert {2, 3} <= set(found), at
                assert opened_store.state.next_segment_seq == 5, at
                assert opened_store.findings.lost_bundles == []

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_flipped_bit_at_every_byte_of_a_seal_loses_no_bundle_and_no_number() -> None:
    """A segment that was delivered from memory has a record in ack.log, and no file: the log has its bundles."""

    async def scenario() -> None:
        disk = torn()
        store = await opened(disk, with_mode(small(), WriteMode.BUFFERED))
        await store.register("s")
        await store.register("t")
        waiting = [asyncio.create_task(store.next(name)) for name in ("s", "t")]
        for number in range(8):
            await store.ingest(bundle(number))
        one, _ = await asyncio.gather(*waiting)
        assert one is not None
        await one.ack()
        files = frozen(disk)
        newest = max(path for path in files.files if path.endswith(".log") and "spare" not in path)
        body = files.files[newest]
        header = read_header(memoryview(body))
        assert header is not None
        frames = [found for found in scan_frames(memoryview(body), header[0]) if isinstance(found, Frame)]
        (seal,) = [frame for frame in frames if frame.kind == FrameKind.SEALED]
        for at, damaged in flips(body, seal.offset, frames[-1].end):
            state = replay_ack_files([(int(newest.rpartition("/")[2][:20]), memoryview(damaged))]).state
            assert state.next_segment_seq > seal_number(seal), at
            assert state.outstanding.get(1, {"t"}) >= {"t"}, at
            if at % OPENED_EVERY:
                continue
            opened_store = await opened(files.thawed(**{newest: damaged}))
            await opened_store.register("t")
            await opened_store.register("s")
            await opened_store.flush()
            assert await drained(opened_store, "t") == list(range(8)), at
            # Its acknowledgement is kept unless it was hit, or the seal was: then the segment is cut anew.
            again = await drained(opened_store, "s")
            assert again in ([], list(range(8))), at
            assert again == [] or at < frames[-1].end, at
            assert opened_store.findings.lost_bundles == [], at
            assert opened_store.state.next_segment_seq > seal_number(seal), at

    asyncio.run(scenario())


def seal_number(frame: Frame) -> int:
    return msgspec.msgpack.decode(frame.payload, type=SealRecord).segment_seq


def test_an_ack_log_cut_at_every_byte_repeats_at_most_what_was_cut_off() -> None:
    async def scenario() -> None:
        store = await made(4, finalise=True, acked=2)
        newest = max(path for path in store.files if path.endswith(".log") and "spare" not in path)
        body = store.files[newest]
        number = int(newest.rpartition("/")[2][:20])
        older = [
            (int(path.rpartition("/")[2][:20]), memoryview(data))
            for path, data in sorted(store.files.items())
            if path.endswith(".log") and "spare" not in path and path != newest
        ]
        acked = []
        for size in range(len(body.rstrip(b"\0")) + 9):
            segments = [(seq, seq) for seq in range(1, 5)]
            state = replay_ack_files([*older, (number, memoryview(body[:size]))], segments).state
            assert all(state.outstanding[seq] >= set(state.subscriptions) for seq in (3, 4)), size
            assert state.next_segment_seq == 5, size
            if "s" in state.subscriptions:
                acked.append(state.subscriptions["s"].done.mark)
        assert acked == sorted(acked), "the more is there, the more is known"
        assert acked[-1] == 2

    asyncio.run(scenario())


class WritingDisk(TornDisk):
    """A writer is at work: the first look at a file of the log finds it half written."""

    looks = 0

    def map(self, path: str) -> memoryview:
        whole = super().map(path)
        if not path.endswith(".wal") or self.looks:
            return whole
        self.looks += 1
        header = read_header(whole)
        assert header is not None
        last = [one for one in scan_frames(whole, header[0]) if isinstance(one, Frame)][-1]
        return memoryview(bytes(whole[: last.end - 8]) + bytes(len(whole) - last.end + 8))


def test_a_writer_at_work_is_not_taken_for_damage() -> None:
    async def scenario() -> None:
        disk = WritingDisk(entropy=SeededEntropy(1), clock=ManualClock())
        disk.looks = 1
        store = await opened(disk, LARGE)
        for number in range(3):
            await store.ingest(bundle(number))
        disk.looks = 0
        (report,) = inspect_store(disk, PATH)
        assert disk.looks == 1, "it was looked at twice"
        assert report.damage == []
        assert report.waiting_bundles == 3

    asyncio.run(scenario())


@pytest.mark.parametrize("damage", ["missing", "empty", "rubbish", "stale"])
def test_a_missing_empty_corrupt_or_stale_checkpoint_loses_nothing(damage: str) -> None:
    """The newest file of ack.log is the cursor of this store."""

    async def scenario() -> None:
        store = await made(3, finalise=True, acked=1)
        logs = sorted(path for path in store.files if path.endswith(".log") and "spare" not in path)
        changed: dict[str, bytes | None] = {}
        for path in logs:
            changed[path] = {"missing": None, "empty": b"", "rubbish": b"rubbish" * 1000, "stale": b""}[damage]
        if damage == "stale":
            fresh = await made(0)
            changed = {path: fresh.files.get(path, b"") for path in logs}
        opened_store, found = await came_out(store.thawed(**changed))
        assert {1, 2} <= set(found)
        assert opened_store.state.next_segment_seq == 4

    asyncio.run(scenario())


def test_dead_letters_survive_where_their_records_do() -> None:
    async def scenario() -> None:
        disk = torn()
        store = await opened(disk)
        await store.register("s", SubscriberConfig(attempts_max=1))
        await store.ingest(bundle(1))
        await store.flush()
        delivery = await store.next("s", 0.0)
        assert delivery is not None
        await delivery.nack("bad")
        disk.crash()
        store = await opened(disk)
        assert store.state.subscriptions["s"].rejected == {1: "bad"}

    asyncio.run(scenario())
