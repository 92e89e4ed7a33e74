"""Whether a log holds all that its record says was written.

Looked at before a writer opens: its fence would fill the place of a log file that is missing, and hide it. Sequences of
a log follow each other without a gap, so what stands before and behind an empty file tells whether anything was in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from penstock.errors import Corrupt
from penstock.keyvalue.log_record import RECORD, LogRecord

__all__ = ["Kept", "LogReader", "check_log", "check_recovered"]


class Kept(Protocol):
    """What the manifest says of the log."""

    @property
    def replay_after_wal_id(self) -> int:
        """The last log file that is no longer needed."""
        ...

    @property
    def last_l0_seq(self) -> int:
        """The last write that lies in a sorted file."""
        ...


class LogReader(Protocol):
    async def kept(self) -> Kept | None:
        """None where there is no manifest that can be read."""
        ...

    async def sequences(self, number: int) -> tuple[int, int] | None:
        """The first and the last write of a log file; None if it cannot be read, or holds none."""
        ...


async def check_log(folder: Path, files: Mapping[int, int], record: LogRecord, reader: LogReader) -> None:
    """Raise `Corrupt` if a file that held acknowledged writes is gone or empty. `record` is older than `files`."""
    kept = await reader.kept()
    if kept is None:
        return
    live = sorted(number for number in files if number > kept.replay_after_wal_id)
    known = frozenset(record.fences)
    for number in live:
        if files[number] == 0 and number not in known:
            await _check_empty(folder, number, [other for other in live if files[other]], kept.last_l0_seq, reader)
    missing = _first_missing(live, kept.replay_after_wal_id)
    before = [other for other in live if files[other] and other < missing]
    if missing <= (live[-1] if live else 0) and await _last_before(before, kept.last_l0_seq, reader) < record.sequence:
        raise _lost(folder, f"{_name(missing)} is missing, and what follows it cannot be read")


def check_recovered(folder: Path, sequence: int, record: LogRecord) -> None:
    """Raise `Corrupt` if a writer found less than its record says: the end of the log is gone."""
    if sequence < record.sequence:
        raise _lost(folder, f"it ends at write {sequence}, and write {record.sequence} was on the disk")


async def _check_empty(folder: Path, number: int, filled: Sequence[int], in_tables: int, reader: LogReader) -> None:
    place = bisect_left(filled, number)
    following = await reader.sequences(filled[place]) if place < len(filled) else None
    # At the end of the log nothing follows: what was recovered tells.
    if following and following[0] > await _last_before(filled[:place], in_tables, reader) + 1:
        raise _lost(folder, f"{_name(number)} is empty, and held writes up to {following[0] - 1}")


async def _last_before(filled: Sequence[int], in_tables: int, reader: LogReader) -> int:
    """The last write of these files, or of the sorted files if that comes later."""
    found = await reader.sequences(filled[-1]) if filled else None
    return max(in_tables, found[1]) if found else in_tables


def _first_missing(live: Sequence[int], kept_up_to: int) -> int:
    expected = kept_up_to + 1
    for number in live:
        if number != expected:
            break
        expected += 1
    return expected


def _name(number: int) -> str:
    return f"wal/{number:020}.sst"


_REMEDY: Final = (
    "restore it from a copy, or rebuild the store from its source; removing {} goes on without those writes"
)


def _lost(folder: Path, why: str) -> Corrupt:
    return Corrupt(f"the log of the key-value store {folder} has lost writes", why, _REMEDY.format(folder / RECORD))
