"""The torn disk is a disk until the power goes, and then keeps only what it had to."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.disk import Disk, RealDisk
from penstock.errors import InvalidInput
from penstock.testing import ManualClock, PowerCut, SeededEntropy, TornDisk
from penstock.testing.storage.torn_disk import Hung

SEEDS = range(60)


def _disk(seed: int = 0, capacity_bytes: int | None = None) -> TornDisk:
    return TornDisk(entropy=SeededEntropy(seed), clock=ManualClock(), capacity_bytes=capacity_bytes)


def _read(disk: Disk, path: str) -> bytes | None:
    try:
        return disk.read(path)[0]
    except FileNotFoundError:
        return None


def _after_crash(act: Callable[[TornDisk], None], path: str) -> set[bytes | None]:
    """What `path` holds after a crash, over many seeds."""
    found = set()
    for seed in SEEDS:
        disk = _disk(seed)
        act(disk)
        disk.crash()
        found.add(_read(disk, path))
    return found


# A disk ------------------------------------------------------------------------------------------


def _transcript(disk: Disk, root: str, seed: int) -> list[object]:
    """The answers to two hundred random calls."""
    draw = random.Random(seed)
    places = ["", "/d", "/d/e", "/f"]
    paths = [f"{place}/{name}" for place in places for name in ("d", "e", "f", "g")]
    calls: list[Callable[[str, str], object]] = [
        lambda a, b: disk.create(a, b.encode(), 1_700_000_000_000_000_000),
        lambda a, b: disk.read(a)[0][-3:],
        lambda a, b: disk.read(a, 2, 5)[0],
        lambda a, b: (disk.stat(a).is_directory, disk.stat(a).is_directory or disk.stat(a).size),
        lambda a, b: disk.stat(a).is_directory or disk.rename(a, b),
        lambda a, b: disk.unlink(a),
        lambda a, b: disk.make_directory(a),
        lambda a, b: disk.scan(a),
        lambda a, b: disk.stat(a).is_directory or disk.sync_file(a),
        lambda a, b: disk.sync_directory(a),
    ]
    answers: list[object] = []
    for _ in range(200):
        call, source, target = draw.choice(calls), root + draw.choice(paths), root + draw.choice(paths)
        try:
            answer = call(source, target)
        except OSError as error:
            answer = type(error).__name__
        answers.append(answer)
    return answers


@pytest.mark.parametrize("seed", range(20))
def test_without_a_crash_it_answers_as_the_real_disk_does(tmp_path: Path, seed: int) -> None:
    root = str(tmp_path)
    torn = _disk()
    for depth in range(2, root.count("/") + 2):
        torn.make_directory("/".join(root.split("/")[:depth]))
    assert _transcript(torn, root, seed) == _transcript(RealDisk(), root, seed)


def test_a_file_keeps_its_inode_and_stamp_through_a_rename() -> None:
    disk = _disk()
    disk.create("/a", b"body", 123)
    before = disk.stat("/a")
    disk.rename("/a", "/b")
    assert disk.stat("/b") == before == disk.read("/b")[1]
    assert (before.size, before.modified_ns, before.is_directory) == (4, 123, False)
    disk.create("/a", b"body", 123)
    assert disk.stat("/a").inode != before.inode


def test_a_lock_excludes_everybody_else_makes_nobody_wait_and_makes_its_file() -> None:
    disk = _disk()
    with disk.lock("/lock"):
        with pytest.raises(BlockingIOError), disk.lock("/lock"):
            pass
        with disk.lock("/other"):
            pass
    with disk.lock("/lock"):
        pass
    assert disk.scan("/") == [("lock", False), ("other", False)]


# That forgets ------------------------------------------------------------------------------------


def _durable_file(disk: TornDisk, path: str = "/a", body: bytes = b"old") -> None:
    disk.create(path, body)
    disk.sync_file(path)
    disk.sync_directory(path.rpartition("/")[0] or "/")


def test_what_was_synced_with_its_name_survives() -> None:
    assert _after_crash(_durable_file, "/a") == {b"old"}


def test_a_synced_file_whose_name_was_not_may_be_gone_but_is_never_torn() -> None:
    def act(disk: TornDisk) -> None:
        disk.create("/a", b"body")
        disk.sync_file("/a")

    assert _after_crash(act, "/a") == {None, b"body"}


def test_a_file_with_a_durable_name_and_unsynced_bytes_may_hold_anything() -> None:
    def act(disk: TornDisk) -> None:
        disk.create("/a", b"body")
        disk.sync_directory("/")

    found = _after_crash(act, "/a")
    assert {b"", b"body", bytes(4)} <= found
    assert None not in found


@pytest.mark.parametrize(
    ("act", "allowed"),
    [
        (lambda disk: disk.unlink("/a"), {None, b"old"}),
        (lambda disk: (disk.unlink("/a"), disk.sync_directory("/")), {None}),
        (lambda disk: disk.rename("/new", "/a"), {b"old", b"new"}),
        (lambda disk: (disk.rename("/new", "/a"), disk.sync_directory("/")), {b"new"}),
    ],
)
def test_a_name_changes_for_sure_only_once_its_folder_is_synced(
    act: Callable[[TornDisk], object], allowed: set[bytes | None]
) -> None:
    def from_durable(disk: TornDisk) -> None:
        _durable_file(disk)
        _durable_file(disk, "/new", b"new")
        act(disk)

    assert _after_crash(from_durable, "/a") == allowed


def test_a_rename_inside_one_folder_is_one_step() -> None:
    for seed in SEEDS:
        disk = _disk(seed)
        _durable_file(disk)
        disk.rename("/a", "/b")
        disk.crash()
        assert [name for name, _ in disk.scan("/")] in (["a"], ["b"])


def test_a_file_moved_between_folders_is_never_lost_and_may_be_found_twice() -> None:
    found = set()
    for seed in SEEDS:
        disk = _disk(seed)
        for folder in ("/x", "/y"):
            disk.make_directory(folder)
        disk.sync_directory("/")
        _durable_file(disk, "/x/f")
        disk.rename("/x/f", "/y/f")
        disk.crash()
        found.add(tuple(folder for folder in "xy" if _read(disk, f"/{folder}/f") == b"old"))
    assert found == {("x",), ("y",), ("x", "y")}


def test_syncing_the_old_folder_alone_does_not_lose_a_moved_file() -> None:
    for seed in SEEDS:
        disk = _disk(seed)
        for folder in ("/x", "/y"):
            disk.make_directory(folder)
        disk.sync_directory("/")
        _durable_file(disk, "/x/f")
        disk.rename("/x/f", "/y/f")
        disk.sync_directory("/x")
        disk.create("/x/f", b"successor")
        disk.sync_file("/x/f")
        disk.sync_directory("/x")
        disk.sync_directory("/y")
        disk.sync_directory("/x")
        disk.crash()
        assert (_read(disk, "/x/f"), _read(disk, "/y/f")) == (b"successor", b"old")


def test_a_folder_that_was_not_synced_into_its_parent_takes_everything_in_it_along() -> None:
    def act(disk: TornDisk) -> None:
        disk.make_directory("/d")
        _durable_file(disk, "/d/a")

    assert _after_crash(act, "/d/a") == {None, b"old"}


def test_any_subset_of_the_unsynced_names_survives() -> None:
    found = set()
    for seed in SEEDS:
        disk = _disk(seed)
        for name in "abc":
            disk.create(f"/{name}", b"")
        disk.crash()
        found.add("".join(name for name, _ in disk.scan("/")))
    assert found == {"", "a", "b", "c", "ab", "ac", "bc", "abc"}


def test_what_survived_one_crash_survives_the_next() -> None:
    for seed in SEEDS:
        disk = _disk(seed)
        disk.create("/a", b"body" * 1000)
        disk.create("/b", b"body" * 1000)
        disk.crash()
        left = [(name, _read(disk, f"/{name}")) for name, _ in disk.scan("/")]
        disk.crash()
        assert [(name, _read(disk, f"/{name}")) for name, _ in disk.scan("/")] == left


def test_a_failed_sync_leaves_pages_that_no_later_sync_saves() -> None:
    def act(disk: TornDisk) -> None:
        disk.create("/a", b"body")
        disk.sync_directory("/")
        disk.fail_next("sync_file")
        with pytest.raises(OSError, match="Input/output"):
            disk.sync_file("/a")
        disk.sync_file("/a")

    assert len(_after_crash(act, "/a")) > 1


def test_locks_are_given_up_by_a_crash() -> None:
    disk = _disk()
    with disk.lock("/lock"):
        disk.crash()
        with disk.lock("/lock"):
            pass


# And fails ---------------------------------------------------------------------------------------


def test_a_full_disk_takes_a_part_and_says_so() -> None:
    disk = _disk(capacity_bytes=10)
    disk.create("/a", b"12345678")
    with pytest.raises(OSError, match="No space left") as failure:
        disk.create("/b", b"12345678")
    assert failure.value.errno == errno.ENOSPC
    assert len(_read(disk, "/b") or b"") <= 2
    disk.unlink("/a")
    disk.unlink("/b")
    disk.create("/c", b"1234567890")


def test_a_failed_sync_of_a_folder_is_not_made_good_by_a_later_one() -> None:
    found = set()
    for seed in SEEDS:
        disk = _disk(seed)
        disk.create("/a", b"body")
        disk.sync_file("/a")
        disk.fail_next("sync_directory")
        with pytest.raises(OSError, match="Input/output"):
            disk.sync_directory("/")
        disk.sync_directory("/")
        disk.crash()
        found.add(_read(disk, "/a"))
    assert found == {None, b"body"}


def test_a_name_given_anew_after_a_failed_sync_is_durable() -> None:
    for seed in SEEDS:
        disk = _disk(seed)
        disk.make_directory("/new")
        disk.create("/new/a", b"old")
        disk.rename("/new/a", "/a")
        disk.fail_next("sync_directory")
        with pytest.raises(OSError, match="Input/output"):
            disk.sync_directory("/")
        disk.create("/new/a", b"new")
        disk.sync_file("/new/a")
        disk.rename("/new/a", "/a")
        disk.sync_directory("/")
        disk.crash()
        assert _read(disk, "/a") == b"new"


def test_a_folder_is_removed_when_it_is_empty() -> None:
    disk = _disk()
    disk.make_directory("/x")
    disk.create("/x/a", b"")
    with pytest.raises(OSError, match="not empty"):
        disk.remove_directory("/x")
    disk.unlink("/x/a")
    disk.remove_directory("/x")
    assert disk.scan("/") == []


def test_a_call_that_hangs_does_nothing_and_the_next_one_goes_through() -> None:
    disk = _disk()
    disk.create("/a", b"body")
    disk.sync_file("/a")
    disk.hang_next("sync_directory")
    with pytest.raises(Hung):
        disk.sync_directory("/")
    disk.sync_directory("/")
    disk.crash()
    assert _read(disk, "/a") == b"body"


@pytest.mark.parametrize("verb", ["create", "sync_file", "rename", "unlink", "make_directory", "sync_directory"])
def test_a_scripted_failure_hits_its_verb_once(verb: str) -> None:
    disk = _disk()
    _durable_file(disk)
    calls: dict[str, Callable[[], None]] = {
        "create": lambda: disk.create("/b", b"x"),
        "sync_file": lambda: disk.sync_file("/a"),
        "rename": lambda: disk.rename("/a", "/c"),
        "unlink": lambda: disk.unlink("/a"),
        "make_directory": lambda: disk.make_directory("/d"),
        "sync_directory": lambda: disk.sync_directory("/"),
    }
    disk.fail_next(verb, errno.EROFS)
    with pytest.raises(OSError, match="Read-only"):
        calls[verb]()
    disk.sync_directory("/")
    assert disk.stat("/").is_directory


def test_a_verb_that_changes_nothing_cannot_be_scripted_to_fail() -> None:
    with pytest.raises(InvalidInput, match="scan"):
        _disk().fail_next("scan")


def test_after_a_power_cut_every_call_fails_and_handlers_of_errors_do_not_run() -> None:
    disk = _disk()
    disk.cut_power(after_writes=1)
    disk.create("/a", b"")
    with pytest.raises(PowerCut):
        disk.create("/b", b"")
    for call in (lambda: disk.scan("/"), lambda: disk.unlink("/a"), lambda: disk.read("/a")):
        with pytest.raises(PowerCut):
            call()
    assert not issubclass(PowerCut, Exception)
    disk.crash()
    disk.scan("/")


def test_reviving_after_a_cut_keeps_the_page_cache_as_a_killed_process_does() -> None:
    disk = _disk()
    disk.create("/a", b"unsynced")
    disk.cut_power()
    with pytest.raises(PowerCut):
        disk.sync_directory("/")
    disk.revive()
    assert _read(disk, "/a") == b"unsynced"


# It finds out ------------------------------------------------------------------------------------


def _replace(disk: Disk, *, skip: str = "") -> None:
    """The textbook replacement of a file, with one step left out."""
    disk.create("/temporary", b"new" * 1000)
    if skip != "sync_file":
        disk.sync_file("/temporary")
    disk.rename("/temporary", "/a")
    if skip != "sync_directory":
        disk.sync_directory("/")


def _outcomes(skip: str) -> set[tuple[bool, str]]:
    """Over every crash point and many seeds: whether success was reported, and what was there afterwards."""
    found = set()
    for seed in range(20):
        for writes in range(6):
            disk = _disk(seed)
            _durable_file(disk)
            disk.cut_power(after_writes=writes)
            try:
                _replace(disk, skip=skip)
                reported = True
            except PowerCut:
                reported = False
            disk.crash()
            left = _read(disk, "/a")
            found.add((reported, "new" if left == b"new" * 1000 else "old" if left == b"old" else "torn"))
    return found


def test_a_careful_replacement_leaves_the_old_or_the_new_and_the_new_once_reported() -> None:
    assert _outcomes(skip="") == {(False, "old"), (False, "new"), (True, "new")}


def test_a_replacement_that_forgets_to_sync_the_file_is_found_torn() -> None:
    assert (True, "torn") in _outcomes(skip="sync_file")


def test_a_replacement_that_forgets_to_sync_the_folder_is_found_undone() -> None:
    assert (True, "old") in _outcomes(skip="sync_directory")
