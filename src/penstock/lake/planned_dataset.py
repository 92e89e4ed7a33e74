"""A table of the catalog as an Arrow dataset that plans when it is scanned.

Engines such as DuckDB hand the columns and the filter of a query to `scanner`. Only then are files chosen: by the times
that the filter leaves possible, then by what the catalog knows of the columns it speaks of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.types as pat

from penstock.catalog import DataFile, ObjectFiles, file_dataset, references, scanner_of
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.lake.time_bounds import time_bounds

__all__ = ["OPAQUE", "TIME_COLUMN", "PlannedDataset"]

# In the metadata of a column that files have in another type: a filter on it is not for Arrow.
OPAQUE: Final = b"penstock.opaque"
TIME_COLUMN: Final = "time"
# Of a time range, each with the statistics of these columns.
PlanFiles = Callable[[int | None, int | None, Sequence[str] | None], Sequence[DataFile]]


class PlannedDataset(ds.Dataset):
    """Rows of one table. `plan_files` gives the files of a time range; it is called on the engine's threads."""

    def __init__(
        self,
        schema: pa.Schema,
        files: ObjectFiles,
        plan_files: PlanFiles,
        planned: Callable[[float], None],
        time_column: str = TIME_COLUMN,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`planned` is told how many seconds the choice of files took."""
        self._schema = schema
        self._files = files
        self._plan_files = plan_files
        self._planned = planned
        self._clock = clock
        self._time_column = time_column

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def scanner(  # type: ignore[override]  # what engines may ask for is not what this allows
        self, columns: list[str] | None = None, filter: pc.Expression | None = None, **_options: Any
    ) -> ds.Scanner:
        """Of the rows for which `filter` holds. Options of engines are left out: memory is bounded here."""
        began = self._clock.monotonic()
        spoken_of = [] if filter is None else references(filter, self._schema, self._comparable(columns, str(filter)))
        planned = self._plan_files(*time_bounds(filter, self._schema, self._time_column), spoken_of)
        inner = file_dataset(
            self._files,
            planned,
            self._schema,
            time_column=self._time_column,
            columns=spoken_of,
            proved=filter is not None,
        )
        self._planned(self._clock.monotonic() - began)
        return scanner_of(inner, columns, filter)

    def _comparable(self, columns: Sequence[str] | None, filter: str) -> list[str]:
        """Columns whose statistics may leave out a file: engines ask for those that their filter needs, and for more.

        Whether the filter really speaks of one, Arrow is asked; a name that is not in its text is not worth the question.
        """
        names = [name for name in (self._schema.names if columns is None else columns) if name in filter]
        return [name for name in names if name != self._time_column and _has_bounds(self._schema.field(name).type)]


def _has_bounds(kind: Any) -> bool:
    return pat.is_string(kind) or pat.is_integer(kind) or pat.is_boolean(kind) or pat.is_timestamp(kind)
