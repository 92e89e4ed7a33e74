"""Settings of the catalog, each with the reason for its default. Every one acts."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from penstock.catalog.format.head_json import HEAD_BYTES_MAX
from penstock.errors import InvalidInput

__all__ = ["CatalogConfig", "CompactionPolicy"]

MIB: Final = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class CompactionPolicy:
    """When files are merged, level by level, and into what."""

    # An hour's files of level 0 become one of level 1 at either bound, or once the hour is closed.
    hour_files: int = 8
    hour_bytes: int = 64 * MIB
    # A day's files of level 1 become level 2.
    day_files: int = 4
    day_bytes: int = 256 * MIB
    # A day's files of level 2 become level 3, each of about this size.
    file_bytes_min: int = 512 * MIB
    file_bytes_max: int = 1024 * MIB
    # Late data comes; an hour or day counts as closed so long after its end.
    closed_after_seconds: float = 900.0
    # One task reads no more files than this, whatever their sizes.
    task_files_max: int = 256

    def __post_init__(self) -> None:
        _check_positive(self, "hour_files", "hour_bytes", "day_files", "day_bytes", "file_bytes_min", "file_bytes_max")
        _check_positive(self, "task_files_max")
        _check_seconds(self, "closed_after_seconds")
        if self.task_files_max < 2:
            raise InvalidInput(f"task_files_max = {self.task_files_max}", "a task merges at least two files")
        if self.file_bytes_min > self.file_bytes_max:
            raise InvalidInput("file_bytes_min is above file_bytes_max", "no file could be made")


@dataclass(frozen=True, kw_only=True)
class CatalogConfig:
    """How a catalog is written, read and kept small."""

    # 3: a head with segments, for millions of files. 2: everything inline, for other readers of `catalog.json`.
    format: int = 3
    # "read": without a catalog.json the legacy pair is read. "refuse": finding only the pair is an error.
    legacy: str = "read"
    # A plan is at most this old. Within it nothing is asked of the store.
    staleness_seconds: float = 1.0
    # Files kept inline; beyond it they are spilled into a segment. 256 entries are about 100 KB in every write, and a
    # spill is some 10 ms of work for as many commits.
    inline_files_max: int = 256
    # Rows of one segment: at 50,000 it is read and decoded in some 10 ms.
    segment_rows_max: int = 50_000
    # A closed day is archived so long after its end.
    archive_after_seconds: float = 3600.0
    # A removed file stays readable this long, for readers that planned before.
    grace_seconds: float = 3600.0
    # An object that nothing refers to is left alone for this long: it may be about to be committed.
    age_floor_seconds: float = 86_400.0
    # How long a lease of a compaction lasts unless it is renewed.
    lease_seconds: float = 600.0
    # The deadline of one commit, retries included.
    commit_deadline_seconds: float = 30.0
    # A head beyond this is neither read nor written.
    head_bytes_max: int = HEAD_BYTES_MAX
    # From here on `stats` and a warning say what to do about a head's size.
    head_bytes_warn: int = 8 * MIB
    # Writes lost to other writers, of all: from here on they advise to split.
    conflict_rate_warn: float = 0.5
    # Decoded segments kept in memory.
    cache_bytes: int = 512 * MIB
    # Segments fetched at once.
    fetch_concurrency: int = 8
    compaction: CompactionPolicy = field(default_factory=CompactionPolicy)

    def __post_init__(self) -> None:
        if self.format not in (2, 3):
            raise InvalidInput(f"format = {self.format!r}", "the catalog is written as version 2 or 3")
        if self.legacy not in ("read", "refuse"):
            raise InvalidInput(f"legacy = {self.legacy!r}", 'it must be "read" or "refuse"')
        _check_positive(self, "inline_files_max", "segment_rows_max", "head_bytes_max", "head_bytes_warn")
        _check_positive(self, "cache_bytes", "fetch_concurrency")
        _check_seconds(self, "staleness_seconds", "archive_after_seconds", "grace_seconds")
        _check_seconds(self, "age_floor_seconds", "lease_seconds", "commit_deadline_seconds")
        if not 0 < self.conflict_rate_warn <= 1:
            raise InvalidInput(
                f"conflict_rate_warn = {self.conflict_rate_warn!r}", "it is a fraction of all writes, from 0 to 1"
            )
        # A segment is named by a head within half the floor of its upload; a late write needs the rest.
        if self.commit_deadline_seconds > self.age_floor_seconds / 4:
            why = f"over a quarter of age_floor_seconds, {self.age_floor_seconds:g}, vacuum could take what it names"
            raise InvalidInput(f"commit_deadline_seconds = {self.commit_deadline_seconds:g} is too long", why)


def _check_positive(config: Any, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise InvalidInput(f"{name} = {value!r}", "it must be a whole number above zero")


def _check_seconds(config: Any, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < inf:
            raise InvalidInput(f"{name} = {value!r}", "it must be a finite number of seconds, not below zero")
