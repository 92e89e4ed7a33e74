"""A plan: the files to read, kept as columns until somebody asks for them one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import pyarrow as pa

from penstock.catalog.change.selection import PlanPiece, as_table
from penstock.catalog.format.data_file import DataFile

__all__ = ["Plan"]


class Plan:
    """The answer to one query, as of one sequence in each shard that was asked.

    `position` is what `as_of` and `pin` take. `missing` names segments that could not be read, in a plan that
    was asked to go on without them. `total_files` is how many files those shards list.
    """

    def __init__(
        self,
        pieces: Sequence[PlanPiece],
        *,
        position: Mapping[str, int],
        total_files: int,
        columns: Sequence[str] | None = None,
        missing: Sequence[str] = (),
    ) -> None:
        self._pieces = list(pieces)
        self._columns = columns
        self.position = dict(position)
        self.total_files = total_files
        self.missing = tuple(missing)

    def __len__(self) -> int:
        return sum(len(piece.rows) for piece in self._pieces)

    def __iter__(self) -> Iterator[DataFile]:
        return iter(self.files)

    @cached_property
    def files(self) -> list[DataFile]:
        """The files, each with the statistics of the columns that were asked for."""
        return [file for piece in self._pieces for file in piece.block.files(piece.rows, self._columns)]

    @cached_property
    def paths(self) -> list[str]:
        return [path for piece in self._pieces for path in piece.block.paths(piece.rows)]

    @cached_property
    def table(self) -> pa.Table:
        """Paths, times, sizes and statistics in Arrow."""
        return as_table(self._pieces).drop_columns(["path_hash", "rest"])

    @property
    def row_count(self) -> int:
        return int(sum(piece.block.row_count[piece.rows].sum() for piece in self._pieces))

    @property
    def size_bytes(self) -> int:
        return int(sum(piece.block.size_bytes[piece.rows].sum() for piece in self._pieces))

    @property
    def pruned_files(self) -> int:
        """Files that need not be read."""
        return self.total_files - len(self)

    def __repr__(self) -> str:
        return f"<Plan of {len(self)} files of {self.total_files}, {self.size_bytes:,} bytes>"
