"""Which files to merge: a pure plan over the visible files and the leases that are held.

Level 0 is merged within an hour, levels 1 and 2 within a day, always inside one tenant, table and shard.
Groups are counted and summed in Arrow; only a group that is due becomes files. A lone file is never rewritten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.catalog.change.selection import PlanPiece, as_table
from penstock.catalog.config import CompactionPolicy
from penstock.catalog.format.block import FileBlock
from penstock.catalog.format.data_file import DAY_NS, HOUR_NS, DataFile

__all__ = ["LEVEL_LAST", "CompactionTask", "Lease", "due_tasks"]

LEVEL_LAST: Final = 3
_SECOND_NS: Final = 1_000_000_000


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to replace some files, until it expires. Renew it while the work goes on."""

    id: str
    shard: str
    owner: str
    paths: tuple[str, ...]
    expires_ms: int


class CompactionTask(msgspec.Struct, frozen=True, kw_only=True):
    """Files of one partition to be merged into one of the next level. `start` and `end` bound their partition."""

    shard: str
    tenant: str
    table: str
    level: int
    target_level: int
    start: int
    end: int
    sources: tuple[DataFile, ...]
    size_bytes: int
    lease: Lease | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(file.path for file in self.sources)


def due_tasks(
    pieces: Sequence[PlanPiece], policy: CompactionPolicy, *, shard: str, now_ns: int, taken: Collection[str] = ()
) -> list[CompactionTask]:
    """Every merge that is due now, leaving out files that are leased; the oldest partitions first, low levels first."""
    table = as_table(list(pieces))
    if taken:
        table = table.filter(pc.invert(pc.is_in(table["path"], pa.array(list(taken), pa.string()))))
    tasks: list[CompactionTask] = []
    for level in range(LEVEL_LAST):
        span = HOUR_NS if level == 0 else DAY_NS
        for tenant, name, start, files in _partitions(table, level, span, policy):
            is_closed = now_ns >= start + span + int(policy.closed_after_seconds * _SECOND_NS)
            tasks += [
                CompactionTask(
                    shard=shard,
                    tenant=tenant,
                    table=name,
                    level=level,
                    target_level=level + 1,
                    start=start,
                    end=start + span,
                    sources=tuple(chosen),
                    size_bytes=sum(file.size_bytes for file in chosen),
                )
                for chosen in _merges(files, level, policy, is_closed=is_closed)
            ]
    return tasks


def _partitions(
    table: pa.Table, level: int, span: int, policy: CompactionPolicy
) -> Iterator[tuple[str, str, int, list[DataFile]]]:
    """Groups with more than one file of this level, in the order of their time."""
    mine = table.filter(pc.equal(table["level"], pa.scalar(level, pa.uint8())))
    if mine.num_rows < 2:
        return
    starts = mine["min_timestamp"].to_numpy() // span * span
    mine = mine.append_column("start", pa.array(starts)).append_column("at", pa.array(np.arange(mine.num_rows)))
    groups = mine.group_by(["start", "tenant", "table"], use_threads=False).aggregate([("at", "list"), ("at", "count")])
    groups = groups.filter(pc.greater(groups["at_count"], pa.scalar(1))).sort_by(
        [("start", "ascending"), ("tenant", "ascending")]
    )
    block = FileBlock(mine.drop_columns(["start", "at"]))
    for group in groups.to_pylist():
        files = block.files(np.array(group["at_list"]))
        files.sort(key=lambda file: (file.min_timestamp, file.path))
        yield group["tenant"], group["table"], group["start"], files


def _merges(
    files: list[DataFile], level: int, policy: CompactionPolicy, *, is_closed: bool
) -> Iterator[list[DataFile]]:
    if level == LEVEL_LAST - 1:
        for chosen, size in _packed(files, policy):
            if len(chosen) > 1 and (size >= policy.file_bytes_min or is_closed):
                yield chosen
        return
    files_min, bytes_min = (
        (policy.hour_files, policy.hour_bytes) if level == 0 else (policy.day_files, policy.day_bytes)
    )
    total = sum(file.size_bytes for file in files)
    if len(files) >= files_min or total >= bytes_min or (level == 0 and is_closed):
        yield from (chosen for chosen, _ in _packed(files, policy) if len(chosen) > 1)


def _packed(files: list[DataFile], policy: CompactionPolicy) -> Iterator[tuple[list[DataFile], int]]:
    """Runs of files in time order that fit one task; a file that is large enough already is left out."""
    chosen: list[DataFile] = []
    size = 0
    for file in files:
        if file.size_bytes >= policy.file_bytes_max:
            continue
        if chosen and (size + file.size_bytes > policy.file_bytes_max or len(chosen) >= policy.task_files_max):
            yield chosen, size
            chosen, size = [], 0
        chosen.append(file)
        size += file.size_bytes
    if chosen:
        yield chosen, size
