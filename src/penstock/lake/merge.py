"""A sorted merge in bounded memory: batches of several sorted runs in, batches of one sorted run out.

Every run has a buffer. What is not greater than the least last key of all buffers can go out, because no run has
anything smaller to come; a run whose buffer is empty is read on. Runs that begin later are not opened before their time.
A run that turns out not to be sorted is named by `Unsorted`, so that the caller can cut it into pieces that are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.lake.sort_keys import order_of, packed_keys

__all__ = ["Run", "Unsorted", "merged"]


@dataclass
class Run:
    """Rows in order: `batches` are read when they are needed, the first not before a key reaches `begins`."""

    name: str
    batches: Iterator[pa.Table]
    # The least value that the first key column can have, as its integer; None when that is not known.
    begins: int | None = None


class Unsorted(Exception):
    """A run has a row that is smaller than one before it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class _Buffer:
    """A run that was opened, and the rows of it that have not gone out."""

    def __init__(self, run: Run, schema: pa.Schema) -> None:
        self.name = run.name
        self._batches = run.batches
        self.rows = schema.empty_table()
        self.is_read = False

    def fill(self) -> None:
        while not self.rows.num_rows and not self.is_read:
            found = next(self._batches, None)
            if found is None:
                self.is_read = True
            else:
                self.rows = found


def merged(runs: Sequence[Run], schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.Table]:
    """All rows of all runs, sorted by `columns`; equal rows in the order of the runs."""
    if not columns:
        for run in runs:
            yield from run.batches
        return
    waiting = sorted(range(len(runs)), key=lambda at: (runs[at].begins is not None, runs[at].begins or 0))
    open_runs: dict[int, _Buffer] = {}
    last = schema.empty_table().select(list(columns))
    while True:
        _open_due(runs, waiting, open_runs, schema, columns[0])
        buffers = [open_runs[at] for at in sorted(open_runs)]
        if not buffers:
            return
        out = _round(buffers, columns, last)
        if out.num_rows:
            last = out.select(list(columns)).slice(out.num_rows - 1)
            yield out
        for at in [at for at, buffer in open_runs.items() if buffer.is_read and not buffer.rows.num_rows]:
            del open_runs[at]


def _open_due(
    runs: Sequence[Run], waiting: list[int], open_runs: dict[int, _Buffer], schema: pa.Schema, column: str
) -> None:
    """Open every run that may begin before the rows that can go out end."""
    while waiting:
        begins = runs[waiting[0]].begins
        if begins is not None and open_runs and begins > _horizon(open_runs, column):
            return
        at = waiting.pop(0)
        open_runs[at] = _Buffer(runs[at], schema)
        open_runs[at].fill()
        if open_runs[at].is_read:
            del open_runs[at]


def _horizon(open_runs: dict[int, _Buffer], column: str) -> float:
    """How far rows may go out; null is greater than everything."""
    for buffer in open_runs.values():
        buffer.fill()
    full = [buffer for buffer in open_runs.values() if buffer.rows.num_rows]
    held_back = [_integer(buffer.rows[column][-1]) for buffer in full if not buffer.is_read]
    return min(held_back) if held_back else max((_integer(buffer.rows[column][-1]) for buffer in full), default=-inf)


def _integer(value: Any) -> float:
    if not value.is_valid:
        return inf
    number: int = value.cast(pa.int64()).as_py()
    return number


def _round(buffers: Sequence[_Buffer], columns: Sequence[str], last: pa.Table) -> pa.Table:
    for buffer in buffers:
        buffer.fill()
    full = [buffer for buffer in buffers if buffer.rows.num_rows]
    if not full:
        return last.slice(0, 0)
    keys = _comparable([last, *(buffer.rows.select(list(columns)) for buffer in full)], columns)
    before, mine = keys[0], keys[1:]
    for buffer, own in zip(full, mine, strict=True):
        if (np.diff(own) < 0).any() or (len(before) and own[0] < before[0]):
            raise Unsorted(buffer.name)
    # A run that is read to its end holds nothing back.
    limits = [own[-1] for buffer, own in zip(full, mine, strict=True) if not buffer.is_read]
    limit = min(limits, default=None)
    counts = [len(own) if limit is None else int(np.searchsorted(own, limit, "right")) for own in mine]
    pieces = [buffer.rows.slice(0, count) for buffer, count in zip(full, counts, strict=True) if count]
    parts = [own[:count] for own, count in zip(mine, counts, strict=True) if count]
    for buffer, count in zip(full, counts, strict=True):
        buffer.rows = buffer.rows.slice(count)
    return _in_order(pieces, np.concatenate(parts))


def _comparable(tables: Sequence[pa.Table], columns: Sequence[str]) -> list[Any]:
    """One number a row, comparable over all tables."""
    keys = packed_keys(pa.concat_tables(tables), columns)
    if isinstance(keys, list):
        order = order_of(keys)
        sorted_keys = [key[order] for key in keys]
        steps = np.zeros(len(order), np.int64)
        for key in sorted_keys:
            steps[1:] |= key[1:] != key[:-1]
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.cumsum(steps)
    else:
        # Half of the range is kept free, so that differences have a sign.
        is_wide = len(keys) > 0 and bool(keys.max() >> np.uint64(63))
        ranks = (np.unique(keys, return_inverse=True)[1] if is_wide else keys).astype(np.int64)
    ends = np.cumsum([table.num_rows for table in tables])
    return np.split(ranks, ends[:-1])


def _in_order(pieces: Sequence[pa.Table], keys: Any) -> pa.Table:
    rows = pa.concat_tables(pieces)
    if (np.diff(keys) >= 0).all():
        return rows
    return rows.combine_chunks().take(np.argsort(keys, kind="stable"))
