"""A directory is made ready, refused clearly, and its sync is never believed after it failed."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.errors import InvalidInput, NotFound, PermissionDenied, StorageFull, Unavailable
from penstock.keyvalue.durable_directory import _SYNCHRONOUS, DurableDirectory, _flags, _refused, check_readable

NOBODY = 65534


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may write anywhere: give that up for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_new_file_is_written_synchronously_wherever_the_store_makes_it(tmp_path: Path) -> None:
    directory = DurableDirectory(tmp_path / "a" / "store")
    if not directory.ordered:
        pytest.skip("the file system under the test directory has no synchronous flag that files inherit")
    (tmp_path / "a" / "store" / "wal").mkdir()
    log = tmp_path / "a" / "store" / "wal" / "1.sst"
    log.write_bytes(b"entries")
    assert _flags(log) & _SYNCHRONOUS


def test_directories_of_an_earlier_store_are_made_synchronous_too(tmp_path: Path) -> None:
    (tmp_path / "store" / "wal").mkdir(parents=True)
    directory = DurableDirectory(tmp_path / "store")
    assert bool(_flags(tmp_path / "store" / "wal") & _SYNCHRONOUS) == directory.ordered


def test_the_probe_leaves_nothing_behind(tmp_path: Path) -> None:
    DurableDirectory(tmp_path / "store")
    assert list((tmp_path / "store").iterdir()) == []


def test_what_a_library_makes_in_a_private_directory_is_private_too(tmp_path: Path) -> None:
    """SlateDB asks for 0644, as the umask allows it."""
    folder = tmp_path / "store"
    DurableDirectory(folder)
    if not hasattr(os, "getxattr") or "system.posix_acl_default" not in os.listxattr(folder):
        pytest.skip("the file system under the test directory keeps no rights for new files")
    (folder / "wal").mkdir(mode=0o755)
    log = folder / "wal" / "1.sst"
    log.touch(mode=0o644)
    assert (log.stat().st_mode & 0o777, log.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_directory_that_was_opened_to_others_stays_open_to_them(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    folder.chmod(0o755)
    DurableDirectory(folder)
    log = folder / "1.sst"
    made = os.umask(0o022)
    log.touch(mode=0o644)
    os.umask(made)
    assert (log.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o644, 0o755)


def test_a_sync_succeeds_and_may_be_repeated(tmp_path: Path) -> None:
    directory = DurableDirectory(tmp_path)
    directory.sync()
    directory.sync()


def test_a_sync_that_failed_fails_for_ever(tmp_path: Path) -> None:
    """The kernel reports lost pages once; asking again would be told that all is well."""
    directory = DurableDirectory(tmp_path)
    descriptor, directory._descriptor = directory._descriptor, -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        directory.sync()
    directory._descriptor = descriptor
    with pytest.raises(OSError, match="Bad file descriptor"):
        directory.sync()


def test_a_directory_that_may_not_be_written_is_refused_by_name(tmp_path: Path) -> None:
    sealed = tmp_path / "sealed"
    sealed.mkdir(mode=0o555)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    tmp_path.chmod(0o755)
    for folder in (sealed, sealed / "store"):
        with without_privileges(), pytest.raises(PermissionDenied, match=str(folder)):
            DurableDirectory(folder)


def test_a_file_in_the_place_of_a_directory_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    for folder in (tmp_path / "file", tmp_path / "file" / "store"):
        with pytest.raises(InvalidInput, match=str(folder)):
            DurableDirectory(folder)
    assert (tmp_path / "file").read_text() == "not a directory"


def test_a_follower_of_a_directory_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=str(tmp_path / "nowhere")):
        check_readable(tmp_path / "nowhere")
    check_readable(tmp_path)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EROFS, PermissionDenied),
        (errno.EIO, Unavailable),
    ],
)
def test_every_other_refusal_of_the_system_has_its_own_error(code: int, kind: type[Exception]) -> None:
    assert type(_refused(Path("/data"), OSError(code, os.strerror(code)))) is kind


def test_folders_that_are_made_are_their_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    """SlateDB chooses the modes of its files: nobody else comes as far as them."""
    before = os.umask(0o000)
    try:
        DurableDirectory(tmp_path / "a" / "store")
        DurableDirectory(tmp_path / "a" / "store")
    finally:
        os.umask(before)
    assert [oct(path.stat().st_mode & 0o777) for path in (tmp_path / "a", tmp_path / "a" / "store")] == ["0o700"] * 2
