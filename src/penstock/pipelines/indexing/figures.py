"""What tasks on executors count, on its way to the driver: in a column of their answers, and counted there.

A task whose answer is lost is run again, and what it counted is lost with it: every figure arrives once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.observability import Observer, Tally, recount

__all__ = ["Batches", "counted", "counting", "with_figures"]

Batches: TypeAlias = Iterator[pa.RecordBatch]

_FIGURES: Final[pa.Field[Any]] = pa.field("figures", pa.binary())


def with_figures(schema: pa.Schema) -> pa.Schema:
    """The schema of an answer that figures travel with."""
    return schema.append(_FIGURES)


def counting(work: Callable[[Observer, Batches], Batches], schema: pa.Schema, batches: Batches) -> Batches:
    """A task whose answer, rows of `schema`, ends with one more row: what it has counted."""
    tally = Tally()
    for batch in work(tally, batches):
        yield batch.append_column(_FIGURES, pa.nulls(batch.num_rows, pa.binary()))
    figures = tally.taken()
    if figures is not None:
        columns = [pa.nulls(1, field.type) for field in schema]
        yield pa.record_batch([*columns, pa.array([figures], pa.binary())], schema=with_figures(schema))


def counted(table: pa.Table, observer: Observer) -> pa.Table:
    """The answers alone, once what came with them is counted."""
    figures: list[Any] = table[_FIGURES.name].drop_null().to_pylist()
    for each in figures:
        recount(each, observer)
    return table.filter(table[_FIGURES.name].is_null()).drop_columns([_FIGURES.name])
