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
    """When files are merged, level by level."""

    # Files of level 0 in an hour that trigger a merge to level 1.
    hour_files: int = 8
    # Bytes of level 0 in an hour that trigger a merge to level 1.
    hour_bytes: int = 64 * MIB
    # Files of level 1 in a day that trigger a merge to level 2.
    day_files: int = 4
    # Bytes of level 1 in a day that trigger a merge to level 2.
    day_bytes: int = 256 * MIB
    # Total bytes of level 2 files that trigger a merge to level 3.
    file_bytes_min: int = 512 * MIB
    # Maximum bytes that one task reads. A file of this size is not merged.
    file_bytes_max: int = 1024 * MIB
    # Time from the end of an hour or day until it counts as closed, in seconds, to wait for late data.
    closed_after_seconds: float = 900.0
    # Maximum files that one task reads.
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

    # Version to write: 3 keeps segments beside a small head, for millions of files; 2 keeps everything in one
    # object, for other readers of `catalog.json`.
    format: int = 3
    # What to do without a `catalog.json`: `read` the legacy pair, or `refuse` it with an error.
    legacy: str = "read"
    # Maximum age of a plan, in seconds. Newer plans need no request.
    staleness_seconds: float = 1.0
    # Maximum files listed in the head; more are moved into a segment. 256 entries add about 100 KB to every
    # write, and moving them takes some 10 ms.
    inline_files_max: int = 256
    # Maximum rows of one segment. 50,000 are read and decoded in some 10 ms.
    segment_rows_max: int = 50_000
    # Time from the end of a day until it is archived, in seconds.
    archive_after_seconds: float = 3600.0
    # Time that a removed file stays readable for earlier plans, in seconds.
    grace_seconds: float = 3600.0
    # Minimum age at which an unreferenced object is deleted, in seconds. A younger one may still be committed.
    age_floor_seconds: float = 86_400.0
    # Duration of a compaction's lease, in seconds, unless it is renewed.
    lease_seconds: float = 600.0
    # Time limit of one commit with its retries, in seconds. At most a quarter of `age_floor_seconds`.
    commit_deadline_seconds: float = 30.0
    # Maximum size of a head, in bytes. A larger one is neither read nor written.
    head_bytes_max: int = HEAD_BYTES_MAX
    # Size of a head, in bytes, from which `stats` and the event `catalog.growing` advise what to do.
    head_bytes_warn: int = 8 * MIB
    # Fraction of writes lost to other writers from which `stats` advises to split the shard.
    conflict_rate_warn: float = 0.5
    # Memory for decoded segments, in bytes.
    cache_bytes: int = 512 * MIB
    # Segments fetched at once.
    fetch_concurrency: int = 8
    # When files are merged: see `CompactionPolicy`.
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
