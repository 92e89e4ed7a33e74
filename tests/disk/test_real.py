"""The real disk keeps the port's promises: whole reads of one file, no links, locks between threads."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.disk import FileStat, RealDisk


@pytest.fixture
def disk() -> RealDisk:
    return RealDisk()


def test_a_file_is_created_once_with_its_bytes_and_its_stamp(disk: RealDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/file"
    disk.create(path, memoryview(b"_body_")[1:5], modified_ns=1_700_000_000_123_456_789)
    disk.sync_file(path)
    data, found = disk.read(path)
    assert data == b"body"
    assert found == disk.stat(path)
    assert found == FileStat(4, 1_700_000_000_123_456_789, Path(path).stat().st_ino, is_directory=False)
    with pytest.raises(FileExistsError):
        disk.create(path, b"other")
    assert disk.read(path)[0] == b"body"


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, None, b"0123456789"), (3, 5, b"34"), (8, 99, b"89"), (10, 12, b""), (99, None, b""), (4, 4, b"")],
)
def test_a_read_is_cut_at_the_end(disk: RealDisk, tmp_path: Path, start: int, end: int | None, expected: bytes) -> None:
    disk.create(f"{tmp_path}/file", b"0123456789")
    assert disk.read(f"{tmp_path}/file", start, end)[0] == expected


def test_a_rename_replaces_and_a_reader_of_the_old_file_keeps_it(disk: RealDisk, tmp_path: Path) -> None:
    disk.create(f"{tmp_path}/old", b"old")
    with (tmp_path / "old").open("rb") as reader:
        disk.create(f"{tmp_path}/new", b"new")
        disk.rename(f"{tmp_path}/new", f"{tmp_path}/old")
        disk.sync_directory(str(tmp_path))
        assert reader.read() == b"old"
    assert disk.read(f"{tmp_path}/old")[0] == b"new"


def test_links_are_not_followed(disk: RealDisk, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    for call in (disk.read, disk.stat, disk.sync_file):
        with pytest.raises(OSError) as refused:
            call(f"{tmp_path}/link")
        assert refused.value.errno == errno.ELOOP
    assert disk.scan(str(tmp_path)) == [("secret", False)]


def test_a_folder_is_told_from_a_file_and_a_pipe_is_neither(disk: RealDisk, tmp_path: Path) -> None:
    disk.make_directory(f"{tmp_path}/folder")
    os.mkfifo(tmp_path / "pipe")
    disk.create(f"{tmp_path}/file", b"")
    assert disk.scan(str(tmp_path)) == [("file", False), ("folder", True)]
    assert disk.stat(f"{tmp_path}/folder").is_directory
    with pytest.raises(IsADirectoryError):
        disk.read(f"{tmp_path}/folder")
    with pytest.raises(FileExistsError):
        disk.make_directory(f"{tmp_path}/folder")
    # Whoever reads a foreign pipe finds nothing, at once.
    assert disk.read(f"{tmp_path}/pipe", 0, 1)[0] == b""


def in_another_thread(work: Callable[[], None]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


def test_a_lock_excludes_other_threads_and_makes_none_of_them_wait(disk: RealDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/lock"

    def take() -> None:
        with disk.lock(path):
            pass

    with disk.lock(path):
        with pytest.raises(BlockingIOError):
            in_another_thread(take)
        with pytest.raises(BlockingIOError):
            take()
    in_another_thread(take)


def test_a_lock_names_its_holder(disk: RealDisk, tmp_path: Path) -> None:
    with disk.lock(f"{tmp_path}/lock"):
        assert f"process {os.getpid()} (" in disk.lock_holder(f"{tmp_path}/lock")
    assert disk.lock_holder(f"{tmp_path}/lock") == "another process"
    assert disk.lock_holder(f"{tmp_path}/none") == "another process"


def test_maps_need_no_descriptor_and_are_given_back_with_their_last_view(disk: RealDisk, tmp_path: Path) -> None:
    """A backlog has more files than a process may have open."""
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    views = []
    for number in range(100):
        path = str(tmp_path / f"mapped-{number}")
        disk.create(path, bytes([number]) * 5000)
        views.append(disk.map(path)[10:20])
        disk.unlink(path)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert [bytes(view) for view in views] == [bytes([number]) * 10 for number in range(100)]
    assert all(view.readonly for view in views)

    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count(str(tmp_path))

    assert mapped() == 100
    views.clear()
    assert mapped() == 0
