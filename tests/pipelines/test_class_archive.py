"""An archive of classes is used only whole, by whom and for what it was made, and nothing depends on it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from penstock.pipelines.spark.class_archive import ClassArchive, archive_name
from penstock.pipelines.spark.java import JavaRuntime

JAVA = JavaRuntime(Path("/java"), 17, "PATH")


def archive_in(folder: Path, java: int = 17) -> ClassArchive:
    return ClassArchive(folder / "cache", f"spark-java{java}-name", java)


def recorded(folder: Path, data: bytes = b"classes", java: int = 17) -> ClassArchive:
    """An archive as Java leaves it at its end."""
    archive = archive_in(folder, java)
    recording = archive.record()
    assert recording is not None
    assert shlex.split(recording.options())[0].endswith(f"={recording.part}")
    recording.part.write_bytes(data)
    assert recording.finish()
    return archive


def path_of(archive: ClassArchive) -> Path:
    return Path(shlex.split(archive.options())[0].partition("=")[2])


@pytest.mark.parametrize(
    ("java", "made", "used"),
    [
        (17, "ArchiveClassesAtExit", "SharedArchiveFile"),
        (24, "ArchiveClassesAtExit", "SharedArchiveFile"),
        (25, "AOTCacheOutput", "AOTCache"),
    ],
)
def test_each_java_is_told_in_its_own_flags(tmp_path: Path, java: int, made: str, used: str) -> None:
    archive = archive_in(tmp_path, java)
    recording = archive.record()
    assert recording is not None
    assert shlex.split(recording.options())[0].startswith(f"-XX:{made}=")
    recording.abandon()
    assert shlex.split(recorded(tmp_path, java=java).options())[0].startswith(f"-XX:{used}=")


@pytest.mark.parametrize("name", ["a b", 'a"b', "a\\b", "Söme dir"])
def test_a_folder_of_any_name_is_one_option(tmp_path: Path, name: str) -> None:
    archive = recorded(tmp_path / name)
    assert path_of(archive).is_relative_to(tmp_path / name)


def test_without_an_archive_java_is_told_nothing(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    assert archive.options() == ""
    assert archive.is_wanted
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("damage", [b"classez", b"class", b"", b"classes and more"])
def test_a_damaged_archive_is_removed_and_not_used(tmp_path: Path, damage: bytes) -> None:
    archive = recorded(tmp_path)
    path_of(archive).write_bytes(damage)
    assert archive.options() == ""


def test_only_one_process_records_and_the_lock_dies_with_it(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        held = archive.record()
        os.write(writer, b"x" if held else b"-")
        os.read(reader, 0)
        os.kill(os.getpid(), 19)
    assert os.read(reader, 1) == b"x"
    assert archive.record() is None
    os.kill(child, 9)
    os.waitpid(child, 0)
    again = archive.record()
    assert again is not None
    again.abandon()


def test_two_that_recorded_one_after_the_other_leave_one_that_is_used(tmp_path: Path) -> None:
    recorded(tmp_path, b"first")
    assert path_of(recorded(tmp_path, b"second")).exists()


def test_what_was_never_finished_is_not_used_and_goes_with_the_next_recording(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    killed = archive.record()
    assert killed is not None
    killed.part.write_bytes(b"half")
    os.close(killed._lock)  # as the end of its process does
    assert archive.options() == ""
    recording = archive.record()
    assert recording is not None
    assert not killed.part.exists()
    assert recording.part != killed.part
    assert not recording.finish()
    assert not recording.part.parent.exists()


def test_a_java_that_writes_none_is_not_asked_again(tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    recording = archive.record()
    assert recording is not None
    assert not recording.finish()
    archive.give_up()
    assert not archive.is_wanted


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_cache_that_cannot_be_written_to_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o500)
    assert archive_in(tmp_path).record() is None


def test_a_cache_whose_place_is_a_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder")
    archive = archive_in(tmp_path)
    assert archive.record() is None
    assert archive.options() == ""
    archive.discard()
    archive.give_up()


@pytest.mark.parametrize("shared", ["folder", "file"])
def test_what_others_could_have_written_is_not_run(tmp_path: Path, shared: str) -> None:
    archive = recorded(tmp_path)
    (path_of(archive) if shared == "file" else tmp_path / "cache").chmod(0o777)
    assert archive.options() == ""
    if shared == "folder":
        assert archive.record() is None


def test_no_more_than_three_are_kept_and_the_one_used_last_stays(tmp_path: Path) -> None:
    first = recorded(tmp_path, b"0")
    for number in range(1, 6):
        os.utime(path_of(first), (4e9, 4e9))
        other = ClassArchive(tmp_path / "cache", f"spark-java17-other{number}", 17)
        recording = other.record()
        assert recording is not None
        recording.part.write_bytes(b"%d" % number)
        os.utime(recording.part, (number, number))
        assert recording.finish()
    assert len(list((tmp_path / "cache").glob("*.jsa"))) == 3
    assert first.options()


def test_the_name_changes_with_the_java_the_jars_and_the_flags(tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "a.jar").write_bytes(b"a")
    name = archive_name(JAVA, tmp_path, ["-X"])
    assert name == archive_name(JAVA, tmp_path, ["-X"])
    assert name != archive_name(JAVA, tmp_path, ["-Y"])
    assert name != archive_name(JavaRuntime(Path("/other"), 17, "PATH"), tmp_path, ["-X"])
    assert name != archive_name(JavaRuntime(Path("/java"), 25, "PATH"), tmp_path, ["-X"])
    (jars / "a.jar").write_bytes(b"another")
    changed = archive_name(JAVA, tmp_path, ["-X"])
    (jars / "b.jar").write_bytes(b"b")
    assert len({name, changed, archive_name(JAVA, tmp_path, ["-X"])}) == 3
