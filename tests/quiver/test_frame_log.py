"""Rotations of a log: the next file is begun ahead, and nothing goes into a file whose turn is over."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from tests.quiver.worlds import torn

from penstock.quiver.log.frame_log import FrameLog
from penstock.quiver.log.frames import FrameKind
from penstock.quiver.log.group_layout import Record
from penstock.quiver.wal.replay import WalReplay, replay_wal_files
from penstock.testing import ManualClock, SeededEntropy, TornDisk
from penstock.testing.storage.torn_file import TornFile

FOLDER = "/log"
# A header and three groups of one block.
ROTATION_SIZE = 4 * 4096
MODES = pytest.mark.parametrize("direct", [True, False])


def begun(disk: TornDisk, *, direct: bool = True, spare_files: int = 2) -> FrameLog:
    if not disk.scan("/"):
        disk.make_directory(FOLDER)
    return FrameLog(
        disk,
        FOLDER,
        rotation_size=ROTATION_SIZE,
        direct=direct,
        clock=ManualClock(),
        entropy=SeededEntropy(1),
        spare_files=spare_files,
    )


def group(sequence: int, size: int = 4000) -> list[Record]:
    return [Record(FrameKind.BUNDLES, [bytes([sequence]) * size], sequence)]


def with_next(disk: TornDisk, *, direct: bool = True) -> FrameLog:
    """Records 1 to 4 are written, the last one into the second file, and the third file is ready."""
    log = begun(disk, direct=direct)
    for sequence in range(1, 5):
        log.write(group(sequence))
    log.release(3)
    assert log.claim_next()
    log.make_next()
    log.settle_next()
    return log


def replayed(disk: TornDisk) -> WalReplay:
    disk.crash()
    files = [name for name, _ in disk.scan(FOLDER) if not name.startswith("spare-")]
    return replay_wal_files([(int(name[:20]), memoryview(disk.read(f"{FOLDER}/{name}")[0])) for name in files], 0)


def refused(path: str, **settings: object) -> TornFile:
    raise OSError(errno.EMFILE, "Too many open files", path)


def sequences(found: WalReplay) -> list[int]:
    return [frame.sequence for frame in found.frames]


@contextmanager
def calls(disk: TornDisk, *names: str) -> Iterator[list[str]]:
    """Which of these the disk was asked for."""
    made: list[str] = []
    before: dict[str, Callable[..., object]] = {name: getattr(disk, name) for name in names}

    def noted(name: str) -> Callable[..., object]:
        def call(*args: object, **settings: object) -> object:
            made.append(name)
            return before[name](*args, **settings)

        return call

    for name in names:
        setattr(disk, name, noted(name))
    try:
        yield made
    finally:
        for name in names:
            delattr(disk, name)


@MODES
def test_a_rotation_into_the_file_that_is_ready_opens_and_syncs_no_file_and_no_folder(direct: bool) -> None:
    disk = torn()
    log = with_next(disk, direct=direct)
    with calls(disk, "open", "rename", "sync_directory") as made:
        for sequence in range(5, 8):
            log.write(group(sequence))
    assert made == []
    assert log.active is not None
    assert log.active.number == 3
    assert sequences(replayed(disk))[-4:] == [4, 5, 6, 7]


@MODES
def test_a_group_that_the_file_has_no_room_for_is_laid_out_for_the_next_one(direct: bool) -> None:
    disk = torn()
    log = with_next(disk, direct=direct)
    log.write(group(5))
    last, behind = log.lay(group(6)), log.lay(group(7))
    assert last.generation != behind.generation
    # A mark in the padding shows whether these bytes are written, or others that were laid out again.
    behind.body(in_blocks=True)[-1] = 7
    assert log.put(last)
    assert log.put(behind)
    assert disk.read(f"{FOLDER}/{3:020d}.wal", 8191, 8192)[0] == (b"\x07" if direct else b"\0")
    assert sequences(replayed(disk))[-3:] == [5, 6, 7]


def test_a_group_that_was_laid_out_for_the_next_file_goes_into_this_one_where_the_one_before_failed() -> None:
    disk = torn()
    log = with_next(disk)
    log.write(group(5))
    lost, behind = log.lay(group(6)), log.lay(group(7))
    disk.fail_next("write_at")
    with pytest.raises(OSError, match="Input/output"):
        log.put(lost)
    assert not log.put(behind)
    log.write(group(6))
    log.write(group(7))
    assert sequences(replayed(disk))[-3:] == [5, 6, 7]


def test_a_large_record_passes_the_next_file_by_and_nothing_is_written_into_that_any_more() -> None:
    """Where two files have one record, the newer one counts: records go into files in the order of their numbers."""
    disk = torn()
    log = with_next(disk)
    log.write(group(5, size=2 * ROTATION_SIZE))
    log.write(group(6))
    assert log.active is not None
    assert log.active.number == 5
    assert [file.number for file in log.retired] == [2, 3, 4]
    log.release(4)
    assert [number for number, _ in log.spares] == [2, 3]
    assert sequences(replayed(disk))[-2:] == [5, 6]


@pytest.mark.parametrize("call", ["write_at", "sync_directory"])
def test_a_next_file_that_cannot_be_begun_is_reused_later_and_the_log_goes_on_without_it(call: str) -> None:
    disk = torn()
    log = begun(disk)
    for sequence in range(1, 5):
        log.write(group(sequence))
    log.release(3)
    assert log.claim_next()
    disk.fail_next(call)
    with pytest.raises(OSError, match="Input/output"):
        log.make_next()
    log.settle_next()
    for sequence in range(5, 9):
        log.write(group(sequence))
    log.release(3)
    assert log.bytes == sum(disk.stat(f"{FOLDER}/{name}").size for name, _ in disk.scan(FOLDER))
    assert sequences(replayed(disk))[-5:] == [4, 5, 6, 7, 8]


@pytest.mark.parametrize("spare_files", [0, 2])
def test_a_file_that_could_not_be_opened_keeps_no_other_from_being_released(spare_files: int) -> None:
    """A process may be out of handles for a moment."""
    disk = torn()
    log = begun(disk, spare_files=spare_files)
    for sequence in range(1, 4):
        log.write(group(sequence))
    opening, disk.open = disk.open, refused  # type: ignore[method-assign]
    with pytest.raises(OSError, match="Too many open files"):
        log.write(group(4))
    disk.open = opening  # type: ignore[method-assign]
    for sequence in range(4, 8):
        log.write(group(sequence))
    log.release(7)
    log.forget_all_but(0)
    assert log.retired == []
    assert log.bytes == sum(disk.stat(f"{FOLDER}/{name}").size for name, _ in disk.scan(FOLDER))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("call", ["rename", "unlink"])
def test_a_call_that_failed_and_was_done_all_the_same_keeps_the_log_from_nothing(call: str, seed: int) -> None:
    disk = torn(seed)
    log = begun(disk, spare_files=1 if call == "rename" else 0)
    for sequence in range(1, 40):
        if sequence % 5 == 0:
            disk.fail_next(call)
        for _ in range(2):
            with suppress(OSError):
                log.write(group(sequence))
                break
        with suppress(OSError):
            log.release(sequence)
    disk.heal()
    log.write(group(40))
    log.release(40, with_active=True)
    assert log.retired == []
    assert {name for name, _ in disk.scan(FOLDER)} == {f"spare-{number:020d}.wal" for number, _ in log.spares}


def test_a_rotation_ahead_of_its_next_file_goes_without_it() -> None:
    disk = torn()
    log = begun(disk)
    for sequence in range(1, 7):
        log.write(group(sequence))
    log.release(3)
    assert log.claim_next()
    log.write(group(7))
    log.make_next()
    log.settle_next()
    for sequence in range(8, 12):
        log.write(group(sequence))
    assert sequences(replayed(disk))[-8:] == list(range(4, 12))


def test_a_next_file_takes_the_place_of_a_spare_in_the_room_of_the_log() -> None:
    disk = torn()
    log = with_next(disk)
    size = log.bytes
    assert log.growth(1000) == 0
    assert log.growth(2 * ROTATION_SIZE) > 0
    for sequence in range(5, 8):
        log.write(group(sequence))
    log.release(6)
    assert log.claim_next()
    log.make_next()
    log.settle_next()
    assert log.bytes == size


def test_a_closed_log_has_no_next_file() -> None:
    disk = torn()
    log = with_next(disk)
    log.close()
    log.release(4)
    assert not log.claim_next()
    assert {name for name, _ in disk.scan(FOLDER)} <= {f"spare-{number:020d}.wal" for number in (1, 2, 3)}
