"""An archive of the classes that Spark loads, so that the next Java process maps them instead of parsing them again.

Java writes such an archive when a process ends in good order, and reads it only with the very Java, jars, class path
and flags that it was written with; so it is named by a hash of all of them, and by a hash of its own bytes, because
Java does not look for damage and would crash of it. It lies in a cache folder of the user and is made by the first run
that finds none. Nothing depends on it: where it is missing, damaged, of somebody else, or the folder cannot be written
to, Spark starts as it always did. It halves the time to a session and to its first job.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import xxhash

from penstock.pipelines.spark.java import JavaRuntime

__all__ = ["ClassArchive", "Recording", "archive_name"]

# From this version on Java records into one cache what it loads and links, in one step.
_AOT_VERSION_MIN: Final = 25
# What Java says of an archive goes to standard output otherwise, between the lines of a command.
_QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"
# Each has some 170 MB; other environments of this user have theirs in the same folder.
_KEPT_MAX: Final = 3
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archives of one name in a folder: at most one is used."""

    folder: Path
    name: str
    java_version: int

    @property
    def _suffix(self) -> str:
        return "aot" if self.java_version >= _AOT_VERSION_MIN else "jsa"

    def options(self) -> str:
        """The flags that make Java use it; empty where there is none to be trusted."""
        found = self._sound()
        if found is None:
            return ""
        with suppress(OSError):
            # The least recently used one is removed first.
            os.utime(found)
        flag = "AOTCache" if self.java_version >= _AOT_VERSION_MIN else "SharedArchiveFile"
        return f"{_quoted(f'-XX:{flag}={found}')} {_QUIET}"

    def record(self) -> Recording | None:
        """Begin to make one; None where another process does, or nothing can be written."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_own(self.folder):
                return None
            lock = os.open(self.folder / f"{self.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return None
        try:
            # Those who hold the lock are alone: what others have left was never finished. A Java that outlived its
            # command may still write, so that no two of them ever have one name.
            for left in self.folder.glob(f"{self.name}.*.part"):
                shutil.rmtree(left, ignore_errors=True)
            return Recording(self, lock, Path(mkdtemp(".part", f"{self.name}.", self.folder)))
        except OSError:
            os.close(lock)
            return None

    @property
    def is_wanted(self) -> bool:
        """Whether there is none yet, and nobody has tried in vain to make it: not every Java can."""
        return not self._found() and not self._failure().exists()

    def give_up(self) -> None:
        """Note that this Java writes none, so that nobody tries again."""
        with suppress(OSError):
            self._failure().touch(mode=0o600)

    def _failure(self) -> Path:
        return self.folder / f"{self.name}.failed"

    def discard(self) -> None:
        """Remove it: Java did not start with it."""
        for path in self._found():
            with suppress(OSError):
                path.unlink()

    def keep(self, part: Path) -> None:
        """Take over what Java has written, under a name that says what is in it."""
        part.chmod(0o600)
        part.rename(self.folder / f"{self.name}-{_checksum(part)}.{self._suffix}")
        newest = sorted(_archives(self.folder), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in newest[_KEPT_MAX:]:
            path.unlink(missing_ok=True)

    def _found(self) -> list[Path]:
        try:
            return sorted(self.folder.glob(f"{self.name}-*.{self._suffix}"))
        except OSError:
            return []

    def _sound(self) -> Path | None:
        for path in self._found():
            try:
                if _is_own(self.folder) and _is_own(path) and path.stem == f"{self.name}-{_checksum(path)}":
                    return path
                path.unlink()
            except (OSError, ValueError):
                continue
        return None


class Recording:
    """One archive in the making, which one process at a time is at."""

    def __init__(self, archive: ClassArchive, lock: int, folder: Path) -> None:
        self._archive, self._lock, self._folder = archive, lock, folder

    @property
    def part(self) -> Path:
        """What Java writes to."""
        return self._folder / "archive"

    def options(self) -> str:
        """The flags that make Java write it when it ends."""
        flag = "AOTCacheOutput" if self._archive.java_version >= _AOT_VERSION_MIN else "ArchiveClassesAtExit"
        return f"{_quoted(f'-XX:{flag}={self.part}')} {_QUIET}"

    def finish(self) -> bool:
        """Take over what was written; called once Java has ended. False where it wrote nothing."""
        try:
            self._archive.keep(self.part)
        except (OSError, ValueError):
            return False
        finally:
            self.abandon()
        return True

    def abandon(self) -> None:
        """Leave it to the next run."""
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def archive_name(java: JavaRuntime, spark_home: Path, options: Sequence[str]) -> str:
    """What an archive belongs to: this Java, these jars at this place, and the flags that Java is started with."""
    told = hashlib.sha256()
    machine = (java.runtime or java.home) / "lib" / "server" / "libjvm.so"
    for part in (java.home, java.version, _stamp(machine), spark_home, *options):
        told.update(f"{part}\n".encode())
    for jar in sorted((spark_home / "jars").glob("*.jar")):
        told.update(f"{jar.name} {_stamp(jar)}\n".encode())
    return f"spark-java{java.version}-{told.hexdigest()[:32]}"


def _quoted(option: str) -> str:
    """As one option, whatever the folder is called: Spark splits options as a shell does."""
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _stamp(path: Path) -> str:
    """What changes with a file; empty where there is none."""
    try:
        status = path.stat()
    except OSError:
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"


def _is_own(path: Path) -> bool:
    """Whether nobody else can have put it there: what is in an archive is run."""
    status = path.stat()
    return status.st_uid == os.geteuid() and not status.st_mode & _WRITABLE_BY_OTHERS


def _archives(folder: Path) -> list[Path]:
    return [*folder.glob("spark-java*-*-*.jsa"), *folder.glob("spark-java*-*-*.aot")]


def _checksum(path: Path) -> str:
    with path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return xxhash.xxh3_128_hexdigest(data)
