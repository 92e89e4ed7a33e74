"""What the log of a directory must hold: the last write that is on the disk, and the log files that are empty by right.

SlateDB ends its log at the first file that is missing and takes an empty one for the fence of a writer. A log file that
was removed or cut to nothing would so take acknowledged writes along without a word, those behind it included. This
record lies beside the log and tells. It is never ahead of the disk, and at most `SECONDS_BETWEEN` behind it. Without it
a log is taken as it is: whoever wants to go on without lost writes removes it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from penstock.clock import Clock
from penstock.undecodable import UNDECODABLE

__all__ = ["RECORD", "SECONDS_BETWEEN", "LogKeeper", "LogRecord", "log_files", "read_record"]

RECORD: Final = "penstock-log.json"
SECONDS_BETWEEN: Final = 1.0
_LOG: Final = "wal"
# Others are files on their way to such a name.
_NAME: Final = re.compile(r"(\d{20})\.sst")


class LogRecord(msgspec.Struct, frozen=True):
    """`sequence` is SlateDB's number of a write; `fences` are numbers of log files that their writer left empty."""

    sequence: int
    fences: tuple[int, ...] = ()


def read_record(folder: Path) -> LogRecord | None:
    """The record of a store; None where there is none, or none that can be read."""
    try:
        return msgspec.json.decode((folder / RECORD).read_bytes(), type=LogRecord)
    except (OSError, *UNDECODABLE):
        return None


class LogKeeper:
    """Keeps the record of a store that is open for writing. `write` is for one thread at a time, and may be any."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        """Take every log file that is empty now for a fence, that of this writer included."""
        self._folder = folder
        self._clock = clock
        self._fences = tuple(sorted(number for number, size in log_files(folder).items() if size == 0))
        before = read_record(folder)
        self._sequence = before.sequence if before else 0
        self._written = clock.monotonic()
        self.write()

    def synced(self, sequence: int) -> bool:
        """Remember the last write that is on the disk; whether it is time to write the record."""
        self._sequence = max(self._sequence, sequence)
        return self._clock.monotonic() - self._written >= SECONDS_BETWEEN

    def write(self) -> None:
        """Replace the record whole. A disk that takes no more keeps the one before, which is true as well."""
        self._written = self._clock.monotonic()
        fresh = self._folder / f"{RECORD}.new"
        with suppress(OSError):
            fresh.write_bytes(msgspec.json.encode(LogRecord(self._sequence, self._fences)))
            fresh.replace(self._folder / RECORD)


def log_files(folder: Path) -> dict[int, int]:
    """Sizes of the log files, by number."""
    try:
        with os.scandir(folder / _LOG) as entries:
            return dict(_sizes(entries))
    except FileNotFoundError:
        return {}


def _sizes(entries: Iterator[os.DirEntry[str]]) -> Iterator[tuple[int, int]]:
    for entry in entries:
        name = _NAME.fullmatch(entry.name)
        if name:
            # Collected meanwhile: then nobody needs it.
            with suppress(FileNotFoundError):
                yield int(name[1]), entry.stat().st_size
