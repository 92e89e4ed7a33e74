"""An open file on a torn disk: what was not synced may be gone, sector by sector; what was, never."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from penstock.disk import DIRECT_BLOCK_BYTES
from penstock.errors import InvalidInput
from penstock.testing import ManualClock, PowerCut, SeededEntropy, TornDisk
from penstock.testing.storage.torn_file import TornFile
from penstock.testing.storage.tree import SECTOR_BYTES

SEEDS = range(80)
BLOCK = DIRECT_BLOCK_BYTES


def torn(seed: int = 0, capacity_bytes: int | None = None) -> TornDisk:
    return TornDisk(entropy=SeededEntropy(seed), clock=ManualClock(), capacity_bytes=capacity_bytes)


def left_after(act: Callable[[TornDisk, TornFile], None], *, direct: bool = False) -> list[bytes]:
    """What each seed's power loss leaves of a file that was durable and four sectors of "." before `act`."""
    found = []
    for seed in SEEDS:
        disk = torn(seed)
        disk.create("/file", b"." * BLOCK)
        disk.sync_file("/file")
        disk.sync_directory("/")
        act(disk, disk.open("/file", direct=direct))
        disk.crash()
        found.append(disk.read("/file")[0])
    return found


def test_synced_writes_survive_whole() -> None:
    def act(disk: TornDisk, file: TornFile) -> None:
        file.write_at(10, b"x" * 2000)
        file.append(b"tail")
        file.sync()

    assert set(left_after(act)) == {b"." * 10 + b"x" * 2000 + b"." * (BLOCK - 2010) + b"tail"}


def test_an_unsynced_overwrite_is_torn_at_sectors_and_touches_nothing_else() -> None:
    def act(disk: TornDisk, file: TornFile) -> None:
        file.write_at(SECTOR_BYTES, b"x" * (3 * SECTOR_BYTES))

    shapes = set()
    for left in left_after(act):
        sectors = [left[at : at + SECTOR_BYTES] for at in range(0, BLOCK, SECTOR_BYTES)]
        assert all(sector in (b"." * SECTOR_BYTES, b"x" * SECTOR_BYTES) for sector in sectors)
        assert set(sectors[0] + b"".join(sectors[4:])) == {ord(".")}
        shapes.add("".join(chr(sector[0]) for sector in sectors[1:4]))
    assert len(shapes) == 8


def test_unsynced_writes_survive_out_of_order() -> None:
    def act(disk: TornDisk, file: TornFile) -> None:
        file.write_at(0, b"1" * SECTOR_BYTES)
        file.write_at(SECTOR_BYTES, b"2" * SECTOR_BYTES)

    assert {(left[:1], left[SECTOR_BYTES : SECTOR_BYTES + 1]) for left in left_after(act)} == {
        (b"1", b"2"),
        (b"1", b"."),
        (b".", b"2"),
        (b".", b"."),
    }


def test_an_unsynced_cut_and_an_unsynced_growth_may_be_undone() -> None:
    def cut(disk: TornDisk, file: TornFile) -> None:
        file.truncate(5)

    def grown(disk: TornDisk, file: TornFile) -> None:
        file.preallocate(2 * BLOCK)

    assert {len(left) for left in left_after(cut)} == {5, BLOCK}
    assert {len(left) for left in left_after(grown)} == {BLOCK, 2 * BLOCK}


def test_a_direct_write_is_durable_when_it_returns() -> None:
    def act(disk: TornDisk, file: TornFile) -> None:
        file.write_at(0, b"x" * BLOCK)
        file.write_at(BLOCK, b"y" * BLOCK)

    assert set(left_after(act, direct=True)) == {b"x" * BLOCK + b"y" * BLOCK}


def test_a_direct_write_that_is_not_synchronous_needs_a_sync() -> None:
    found: dict[bool, set[bytes]] = {}
    for synced in (False, True):
        for seed in SEEDS:
            disk = torn(seed)
            disk.create("/file", b"." * BLOCK)
            disk.sync_file("/file")
            disk.sync_directory("/")
            with disk.open("/file", direct=True, synchronous=False) as file:
                file.write_at(0, b"x" * BLOCK)
                if synced:
                    file.sync()
            disk.crash()
            found.setdefault(synced, set()).add(disk.read("/file")[0])
    assert found[True] == {b"x" * BLOCK}
    assert len(found[False]) > 5


def test_a_direct_write_that_the_power_interrupts_is_torn() -> None:
    def act(disk: TornDisk, file: TornFile) -> None:
        disk.cut_power()
        with pytest.raises(PowerCut):
            file.write_at(0, b"x" * BLOCK)

    found = {bytes(sorted(set(left))) for left in left_after(act, direct=True)}
    assert {b".", b".x"} <= found


@pytest.mark.parametrize("direct", [False, True])
def test_a_failed_write_may_have_written_any_part(direct: bool) -> None:
    def act(disk: TornDisk, file: TornFile) -> None:
        disk.fail_next("write_at")
        with pytest.raises(OSError, match="Input/output"):
            file.write_at(0, b"x" * BLOCK)

    assert len(set(left_after(act, direct=direct))) > 5


def test_a_failed_sync_is_never_made_good_by_a_later_one() -> None:
    def act(disk: TornDisk, file: TornFile) -> None:
        file.write_at(0, b"x" * SECTOR_BYTES)
        disk.fail_next("sync_file")
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        file.write_at(SECTOR_BYTES, b"y" * SECTOR_BYTES)
        file.sync()

    found = {(left[:1], left[SECTOR_BYTES : SECTOR_BYTES + 1]) for left in left_after(act)}
    assert found == {(b"x", b"y"), (b".", b"y")}


def test_what_is_written_anew_after_a_failed_sync_is_saved() -> None:
    def act(disk: TornDisk, file: TornFile) -> None:
        file.write_at(0, b"x" * SECTOR_BYTES)
        disk.fail_next("sync_file")
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        file.write_at(0, b"z" * SECTOR_BYTES)
        file.sync()

    assert {left[:1] for left in left_after(act)} == {b"z"}


def test_a_swallowed_sync_saves_nothing_and_the_next_one_does() -> None:
    def swallowed(disk: TornDisk, file: TornFile) -> None:
        file.write_at(0, b"x" * SECTOR_BYTES)
        disk.swallow_next("sync_file")
        file.sync()

    def repeated(disk: TornDisk, file: TornFile) -> None:
        swallowed(disk, file)
        file.sync()

    assert {left[:1] for left in left_after(swallowed)} == {b"x", b"."}
    assert {left[:1] for left in left_after(repeated)} == {b"x"}


def test_only_a_sync_can_be_swallowed() -> None:
    with pytest.raises(InvalidInput, match="write_at"):
        torn().swallow_next("write_at")


def test_a_full_disk_takes_a_part_of_an_append_and_all_of_what_was_set_aside() -> None:
    disk = torn(capacity_bytes=100)
    file = disk.open("/file")
    file.preallocate(80)
    file.write_at(0, b"x" * 80)
    with pytest.raises(OSError) as full:
        file.append(b"y" * 30)
    assert full.value.errno == errno.ENOSPC
    assert 80 <= file.size() <= 100
    with pytest.raises(OSError):
        file.preallocate(200)
    disk.resize(None)
    file.preallocate(200)


def test_a_file_that_was_open_before_the_power_went_is_gone() -> None:
    disk = torn()
    file = disk.open("/file")
    disk.crash()
    with pytest.raises(PowerCut):
        file.append(b"late")


def test_a_file_that_was_opened_and_whose_name_was_not_synced_may_be_gone() -> None:
    found = set()
    for seed in SEEDS:
        disk = torn(seed)
        file = disk.open("/new")
        file.append(b"body")
        file.sync()
        disk.crash()
        found.add(disk.read("/new")[0] if disk.scan("/") else None)
    assert found == {None, b"body"}
