"""The names of a log's files: a number that only grows; spare ones wait to be used again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.quiver.log.frames import BLOCK_BYTES

__all__ = ["SPARE", "WAL_SUFFIX", "LogFile", "file_name", "file_number", "is_spare"]

WAL_SUFFIX: Final = ".wal"
SPARE: Final = "spare-"


@dataclass(slots=True)
class LogFile:
    """A file of the log: its records end before `end_record`, and its frames at `end`."""

    number: int
    size: int
    end_record: int
    end: int = BLOCK_BYTES


def file_name(number: int, suffix: str = WAL_SUFFIX) -> str:
    return f"{number:020d}{suffix}"


def file_number(name: str, suffix: str = WAL_SUFFIX) -> int | None:
    """The number in a file's name, spare or not; None for a name that is none of ours."""
    digits = name.removeprefix(SPARE).removesuffix(suffix)
    return int(digits) if name.endswith(suffix) and len(digits) == 20 and digits.isdecimal() else None


def is_spare(name: str) -> bool:
    return name.startswith(SPARE)
