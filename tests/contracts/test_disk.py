"""One contract for the real disk and the torn one: what a caller may rely on while the power stays on."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.campaigns import examples

from penstock.disk import DIRECT_BLOCK_BYTES, Disk, RealDisk, aligned_buffer, has_direct_writes
from penstock.testing import ManualClock, SeededEntropy, TornDisk

BLOCK = DIRECT_BLOCK_BYTES


def torn(root: str, **settings_: bool) -> TornDisk:
    disk = TornDisk(entropy=SeededEntropy(0), clock=ManualClock(), **settings_)
    for depth in range(2, root.count("/") + 2):
        disk.make_directory("/".join(root.split("/")[:depth]))
    return disk


@pytest.fixture(params=["real", "torn"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk() if request.param == "real" else torn(str(tmp_path))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return f"{tmp_path}/file"


def body(disk: Disk, path: str) -> bytes:
    return disk.read(path)[0]


def test_an_opened_file_is_made_once_and_keeps_what_it_holds(disk: Disk, path: str) -> None:
    with disk.open(path) as file:
        assert (file.direct, file.size()) == (False, 0)
        assert file.append(b"one") == 0
        assert file.append(memoryview(b"_two_")[1:4]) == 3
    with disk.open(path) as file:
        assert file.size() == 6
        assert file.append(bytearray(b"!")) == 6
        file.sync()
    assert body(disk, path) == b"onetwo!"


def test_a_write_at_overwrites_grows_and_leaves_zeros_in_a_gap(disk: Disk, path: str) -> None:
    with disk.open(path) as file:
        file.write_at(0, b"abcdef")
        file.write_at(2, b"XY")
        file.write_at(8, b"!")
        file.write_at(3, b"")
    assert body(disk, path) == b"abXYef\0\0!"


def test_room_set_aside_reads_as_zeros_and_never_shrinks_a_file(disk: Disk, path: str) -> None:
    with disk.open(path) as file:
        file.write_at(0, b"abc")
        file.preallocate(10)
        file.preallocate(5)
        assert file.size() == 10
    assert body(disk, path) == b"abc" + bytes(7)


def test_truncate_cuts_and_grows(disk: Disk, path: str) -> None:
    with disk.open(path) as file:
        file.write_at(0, b"abcdef")
        file.truncate(2)
        file.truncate(4)
        assert file.append(b"!") == 4
    assert body(disk, path) == b"ab\0\0!"


def test_a_map_shows_the_file_and_outlives_its_name(disk: Disk, path: str) -> None:
    disk.create(path, b"body")
    shown = disk.map(path)
    disk.unlink(path)
    assert bytes(shown) == b"body"
    assert shown.readonly
    with pytest.raises(FileNotFoundError):
        disk.map(path)


def test_an_empty_file_maps_to_nothing_and_a_folder_to_an_error(disk: Disk, path: str, tmp_path: Path) -> None:
    disk.create(path, b"")
    assert bytes(disk.map(path)) == b""
    with pytest.raises(IsADirectoryError):
        disk.map(str(tmp_path))


def test_a_direct_write_takes_whole_blocks_from_any_memory(disk: Disk, path: str, tmp_path: Path) -> None:
    if not has_direct_writes(disk, str(tmp_path)):
        pytest.skip("this file system has no direct writes")
    block = aligned_buffer(BLOCK)
    block[:4] = b"head"
    with disk.open(path, direct=True) as file:
        assert file.direct
        file.preallocate(4 * BLOCK)
        file.write_at(BLOCK, block)
        file.write_at(0, memoryview(b"_" + b"a" * BLOCK)[1:])
        for offset, data in [(1, bytes(BLOCK)), (0, b"short"), (BLOCK // 2, bytes(BLOCK))]:
            with pytest.raises(OSError) as refused:
                file.write_at(offset, data)
            assert refused.value.errno == errno.EINVAL
    assert body(disk, path) == b"a" * BLOCK + bytes(block) + bytes(2 * BLOCK)


def test_the_probe_leaves_nothing_behind(disk: Disk, tmp_path: Path) -> None:
    has_direct_writes(disk, str(tmp_path))
    assert disk.scan(str(tmp_path)) == []
    assert not has_direct_writes(disk, f"{tmp_path}/none")


def test_a_file_system_without_direct_writes_is_found_out(tmp_path: Path) -> None:
    disk = torn(str(tmp_path), has_direct_writes=False)
    assert not has_direct_writes(disk, str(tmp_path))
    assert disk.scan(str(tmp_path)) == []


def test_a_closed_file_is_refused_and_closing_again_is_nothing(disk: Disk, path: str) -> None:
    file = disk.open(path)
    file.close()
    file.close()
    calls: list[Callable[[], object]] = [lambda: file.write_at(0, b"x"), file.sync, file.size]
    for call in calls:
        with pytest.raises(OSError) as refused:
            call()
        assert refused.value.errno == errno.EBADF


def test_an_open_file_goes_on_under_its_new_name_and_after_its_last_one(disk: Disk, path: str) -> None:
    with disk.open(path) as file:
        disk.rename(path, f"{path}-new")
        file.append(b"moved")
        assert body(disk, f"{path}-new") == b"moved"
        disk.unlink(f"{path}-new")
        file.append(b"!")
        file.sync()
    with pytest.raises(FileNotFoundError):
        disk.stat(f"{path}-new")


def test_a_missing_folder_is_named_by_the_system(disk: Disk, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(f"{tmp_path}/none/file")


CALLS = st.one_of(
    st.tuples(st.just("append"), st.binary(max_size=40)),
    st.tuples(st.just("write_at"), st.integers(0, 60), st.binary(max_size=40)),
    st.tuples(st.just("truncate"), st.integers(0, 60)),
    st.tuples(st.just("preallocate"), st.integers(1, 60)),
    st.tuples(st.just("sync")),
)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(CALLS, max_size=12))
def test_both_disks_hold_the_same_bytes_after_the_same_calls(tmp_path: Path, calls: list[tuple[object, ...]]) -> None:
    path = f"{tmp_path}/same"
    bodies = []
    for disk in (RealDisk(), torn(str(tmp_path))):
        with disk.open(path) as file:
            for verb, *arguments in calls:
                getattr(file, str(verb))(*arguments)
        bodies.append(body(disk, path))
        disk.unlink(path)
    assert bodies[0] == bodies[1]
