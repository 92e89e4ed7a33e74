"""Spark started with an archive of its classes, which halves its start and its first job.

The archive lies in the user's cache folder (`$XDG_CACHE_HOME/penstock/java`, else `~/.cache/penstock/java`). A run that
finds none leaves a process behind that makes it, at the lowest priority, while nobody waits: Java takes several times
longer when it records what it loads. `PENSTOCK_CLASS_ARCHIVE=off` keeps commands from using or making archives; a folder
there, as an absolute path, makes them use the archives in it and make none.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from penstock.pipelines import ClassArchive

__all__ = ["RECORD", "SWITCH", "WarmStart", "archive_folder", "has_fixed_folder", "java_shim_directory"]

SWITCH: Final = "PENSTOCK_CLASS_ARCHIVE"
RECORD: Final = "record"
_OFF: Final = ("off", "0", "false", "no")
# Java writes some 170 MB when it ends, and nobody waits for it.
_WRITE_SECONDS_MAX: Final = 600.0

_T = TypeVar("_T")


def archive_folder(environment: Mapping[str, str]) -> Path | None:
    """Where archives lie; None where they are switched off, or nobody has a home."""
    if environment.get(SWITCH, "").lower() in _OFF:
        return None
    if has_fixed_folder(environment):
        return Path(environment[SWITCH])
    cache = environment.get("XDG_CACHE_HOME") or ""
    # As the specification has it, a path that is not absolute counts as none.
    if Path(cache).is_absolute():
        return Path(cache) / "penstock" / "java"
    home = environment.get("HOME") or ""
    return Path(home) / ".cache" / "penstock" / "java" if Path(home).is_absolute() else None


def has_fixed_folder(environment: Mapping[str, str]) -> bool:
    """Whether archives are only read, from a folder that somebody else has filled."""
    return Path(environment.get(SWITCH, "")).is_absolute()


class WarmStart:
    """One start of Spark: with an archive, or recording one, or neither."""

    def __init__(self, archive: ClassArchive | None, *, record: bool = False, train: bool = True) -> None:
        self._archive = archive
        self._train = train
        self._used = archive.options() if archive and not record else ""
        self._recording = archive.record() if archive and record else None

    def open(self, start: Callable[[str], _T], is_ended: Callable[[], bool] = lambda: False) -> _T:
        """What `start` gives for Java's options. One that fails with an archive is tried without, unless it was ended."""
        try:
            return start(self._recording.options() if self._recording else self._used)
        except Exception:
            if self._archive is None or not self._used or is_ended():
                raise
            self._archive.discard()
            self._used = ""
        return start("")

    def finish(self, end_java: Callable[[float], bool]) -> None:
        """After a session has stopped in good order: keep what Java writes at its end, or have somebody record it."""
        if self._recording is not None and self._archive is not None:
            if end_java(_WRITE_SECONDS_MAX) and not self._recording.finish():
                self._archive.give_up()
            self.abandon()
        elif self._train and self._archive is not None and not self._used and self._archive.is_wanted:
            _train()

    def abandon(self) -> None:
        """Whatever happened, the next run may record."""
        if self._recording is not None:
            self._recording.abandon()
            self._recording = None


def _train() -> None:
    """Record in a process of its own that outlives this one; whoever finds another one recording ends at once."""
    # What is not written today is written tomorrow.
    with suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.class_training"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, SWITCH: RECORD},
        )


def java_shim_directory() -> Path:
    """Where the launcher of the wheel's Java is kept: with the environment it belongs to."""
    return Path(sys.prefix) / "share" / "penstock" / "java"
