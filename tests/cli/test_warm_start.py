"""A start of Spark uses an archive where there is one, goes on without where it fails, and asks for one where none is."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from penstock.cli.running import warm_start
from penstock.cli.running.warm_start import WarmStart, archive_folder, has_fixed_folder
from penstock.errors import Unavailable
from penstock.pipelines.spark.class_archive import ClassArchive


@pytest.fixture
def archive(tmp_path: Path) -> ClassArchive:
    return ClassArchive(tmp_path / "cache", "spark-java17-name", 17)


def record(archive: ClassArchive) -> None:
    warm = WarmStart(archive, record=True)

    def start(options: str) -> None:
        assert "ArchiveClassesAtExit" in options
        Path(shlex.split(options)[0].partition("=")[2]).write_bytes(b"classes")

    warm.open(start)
    warm.finish(lambda _: True)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """How often somebody was asked to record."""
    asked: list[bool] = []
    monkeypatch.setattr(warm_start, "_train", lambda: asked.append(True))
    return asked


def test_a_run_that_finds_none_has_one_made_and_the_next_uses_it(archive: ClassArchive, trained: list[bool]) -> None:
    first = WarmStart(archive)
    assert first.open(lambda options: options) == ""
    first.finish(lambda _: pytest.fail("Java is not waited for"))
    assert trained == [True]
    record(archive)
    second = WarmStart(archive)
    assert "SharedArchiveFile" in second.open(lambda options: options)
    second.finish(lambda _: pytest.fail("Java is not waited for"))
    assert trained == [True]


def test_a_java_that_does_not_start_with_an_archive_is_started_without_and_the_archive_is_gone(
    archive: ClassArchive,
) -> None:
    record(archive)
    tried: list[str] = []

    def start(options: str) -> str:
        tried.append(options)
        if options:
            raise Unavailable("Java does not start")
        return "session"

    assert WarmStart(archive).open(start) == "session"
    assert (len(tried), archive.options()) == (2, "")


def test_a_start_that_was_ended_is_not_begun_again(archive: ClassArchive) -> None:
    record(archive)
    tried: list[str] = []

    def start(options: str) -> str:
        tried.append(options)
        raise Unavailable("killed")

    with pytest.raises(Unavailable):
        WarmStart(archive).open(start, lambda: True)
    assert len(tried) == 1
    assert archive.options()


def test_a_java_that_records_nothing_is_not_asked_again(archive: ClassArchive, trained: list[bool]) -> None:
    warm = WarmStart(archive, record=True)
    warm.open(lambda _: None)
    warm.finish(lambda _: True)
    WarmStart(archive).finish(lambda _: True)
    assert trained == []


def test_a_recording_that_was_given_up_is_left_to_the_next_run(archive: ClassArchive, trained: list[bool]) -> None:
    warm = WarmStart(archive, record=True)
    warm.open(lambda _: None)
    warm.finish(lambda _: False)
    WarmStart(archive).finish(lambda _: True)
    assert trained == [True]


def test_without_a_folder_for_archives_nothing_is_used_or_made(trained: list[bool]) -> None:
    warm = WarmStart(None)
    assert warm.open(lambda options: options) == ""
    warm.finish(lambda _: True)
    assert trained == []


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"XDG_CACHE_HOME": "/cache", "HOME": "/home/me"}, "/cache/penstock/java"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/home/me"}, "/home/me/.cache/penstock/java"),
        ({"HOME": "/home/me"}, "/home/me/.cache/penstock/java"),
        ({}, None),
        ({"HOME": "/home/me", "PENSTOCK_CLASS_ARCHIVE": "off"}, None),
        ({"HOME": "/home/me", "PENSTOCK_CLASS_ARCHIVE": "/image/archives"}, "/image/archives"),
    ],
)
def test_archives_lie_in_the_cache_of_the_user(environment: dict[str, str], folder: str | None) -> None:
    assert archive_folder(environment) == (Path(folder) if folder else None)


def test_archives_of_a_named_folder_are_used_and_never_made(archive: ClassArchive, trained: list[bool]) -> None:
    assert has_fixed_folder({"PENSTOCK_CLASS_ARCHIVE": "/image/archives"})
    assert not has_fixed_folder({"PENSTOCK_CLASS_ARCHIVE": "record"})
    assert not has_fixed_folder({})
    warm = WarmStart(archive, train=False)
    warm.open(lambda options: options)
    warm.finish(lambda _: True)
    assert trained == []
    record(archive)
    assert "SharedArchiveFile" in WarmStart(archive, train=False).open(lambda options: options)
