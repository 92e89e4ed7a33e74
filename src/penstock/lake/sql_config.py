"""The bounds of SQL queries."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

from penstock.errors import InvalidInput

__all__ = ["SqlConfig"]

MIB: Final = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class SqlConfig:
    """Bounds of queries."""

    # What DuckDB may hold, over all queries of an engine; joins and sorts of more are refused: nothing is spilled to a disk.
    memory_bytes: int = 1024 * MIB
    # Threads of DuckDB, over all queries of an engine.
    threads: int = 2
    # Rows of an answer; more are cut off, and the answer says so.
    rows_max: int = 10_000
    # Bytes of an answer: whoever asked for it holds it whole, and so does the gateway that passes it on.
    answer_bytes_max: int = 64 * MIB
    # A query that takes longer is interrupted.
    seconds_max: float = 60.0
    # Queries at once in one process; others wait.
    queries_at_once: int = 4

    def __post_init__(self) -> None:
        for name in ("memory_bytes", "threads", "rows_max", "answer_bytes_max", "queries_at_once"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidInput(f"{name} = {value!r}", "it must be a whole number above zero")
        if not 0 < self.seconds_max < inf:
            raise InvalidInput(f"seconds_max = {self.seconds_max!r}", "it must be a finite number above zero")
