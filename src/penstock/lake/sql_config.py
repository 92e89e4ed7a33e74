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
    """Limits of SQL queries."""

    # Memory of DuckDB over all queries of a process, in bytes. A query that needs more is refused: nothing is
    # spilled to disk.
    memory_bytes: int = 1024 * MIB
    # Threads of DuckDB over all queries of a process.
    threads: int = 2
    # Maximum rows of an answer. More are cut off, and the answer says so.
    rows_max: int = 10_000
    # Maximum size of an answer, in bytes. The gateway holds it in memory.
    answer_bytes_max: int = 64 * MIB
    # Time limit of a query, in seconds.
    seconds_max: float = 60.0
    # Queries at once in one process. Others wait.
    queries_at_once: int = 4

    def __post_init__(self) -> None:
        for name in ("memory_bytes", "threads", "rows_max", "answer_bytes_max", "queries_at_once"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidInput(f"{name} = {value!r}", "it must be a whole number above zero")
        if not 0 < self.seconds_max < inf:
            raise InvalidInput(f"seconds_max = {self.seconds_max!r}", "it must be a finite number above zero")
