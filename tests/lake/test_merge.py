"""The merge: every row once and in order, in bounded memory, whatever the runs are like."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.catalog.parquet_files import HOUR, NS, describe, rows
from tests.catalog.samples import small_catalog

from penstock.catalog import ColumnStats, DataFile, ObjectFiles, TailCache, column_stats
from penstock.errors import Corrupt, NotFound
from penstock.lake.file_layout import CompactionConfig
from penstock.lake.merge import Run, Unsorted, merged
from penstock.lake.merge_files import MergeWork, merge_files
from penstock.lake.merged_stats import merged_stats
from penstock.lake.sort_keys import order_of, packed_keys
from penstock.loops import LoopThread
from penstock.objects import MemoryStore
from penstock.testing import ManualClock

VALUES = {
    "int": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3)),
    "text": st.one_of(st.none(), st.text(max_size=3)),
    "float": st.one_of(st.none(), st.floats(), st.sampled_from([0.0, -0.0, math.nan])),
}
TYPES = {"int": pa.int64(), "text": pa.string(), "float": pa.float64()}


@given(data=st.data(), kinds=st.lists(st.sampled_from(["int", "text", "float"]), min_size=1, max_size=3))
def test_keys_have_the_order_that_arrow_sorts_by(data: Any, kinds: list[str]) -> None:
    count = data.draw(st.integers(0, 20))
    columns = {
        f"c{at}": pa.array([data.draw(VALUES[kind]) for _ in range(count)], TYPES[kind])
        for at, kind in enumerate(kinds)
    }
    table = pa.table({**columns, "row": list(range(count))})
    mine = table.take(order_of(packed_keys(table, list(columns))))
    theirs = table.take(pc.sort_indices(table, sort_keys=[(name, "ascending") for name in [*columns, "row"]]))
    assert str(mine.to_pylist()) == str(theirs.to_pylist())


@given(
    runs=st.lists(st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["a", "b", None])), max_size=40), max_size=6),
    batch=st.integers(1, 9),
    with_begins=st.booleans(),
)
def test_a_merge_has_every_row_once_and_in_order(runs: list[Any], batch: int, with_begins: bool) -> None:
    schema = pa.schema([("time", NS), ("name", pa.string()), ("row", pa.string())])
    tables = []
    for number, each in enumerate(runs):
        each = sorted(each, key=lambda one: (one[0], one[1] is None, one[1] or ""))
        labels = [f"{number}-{at}" for at in range(len(each))]
        times, texts = [one[0] for one in each], [one[1] for one in each]
        tables.append(pa.table([pa.array(times, NS), pa.array(texts, pa.string()), labels], schema=schema))
    made = [
        Run(
            str(number),
            iter([table.slice(at, batch) for at in range(0, table.num_rows, batch)]),
            table["time"][0].cast(pa.int64()).as_py() if with_begins and table.num_rows else None,
        )
        for number, table in enumerate(tables)
    ]
    found = list(merged(made, schema, ["time", "name"]))
    whole = pa.concat_tables([schema.empty_table(), *found])
    assert Counter(whole["row"].to_pylist()) == Counter(row for table in tables for row in table["row"].to_pylist())
    keys = [
        (one["time"].value if hasattr(one["time"], "value") else one["time"], one["name"] is None, one["name"] or "")
        for one in whole.to_pylist()
    ]
    assert keys == sorted(keys)


def test_a_run_that_is_not_sorted_is_named() -> None:
    schema = pa.schema([("time", pa.int64())])
    good = Run("good", iter([pa.table({"time": [1, 2, 3]})]))
    bad = Run("bad", iter([pa.table({"time": [1, 5]}), pa.table({"time": [4]})]))
    with pytest.raises(Unsorted, match="bad"):
        list(merged([good, bad], schema, ["time"]))


class Files:
    """Data files in memory, and where their merge goes."""

    def __init__(self) -> None:
        self.store, self.door = MemoryStore(), LoopThread("test-merge")
        self.catalog = self.door.run(small_catalog(self.store, ManualClock()))
        self.files = ObjectFiles(self.store, self.catalog.layout, self.door, TailCache(1 << 20))

    def add(self, path: str, content: pa.Table, group_rows: int = 1000, **members: Any) -> DataFile:
        sink = pa.BufferOutputStream()
        pq.write_table(content, sink, row_group_size=group_rows)
        body = sink.getvalue().to_pybytes()
        self.door.run(self.store.put(self.catalog.layout.key(path), body))
        return describe(path, content, len(body), **members)

    def merge(self, *sources: DataFile, **config: Any) -> tuple[DataFile, pa.Table]:
        work = MergeWork(sources=sources, target="out.parquet", level=1, config=CompactionConfig(**config))
        done = merge_files(self.files, work, self.upload)
        return done, pq.read_table(pa.BufferReader(self.body))

    def upload(self, path: str, body: memoryview) -> None:
        self.body = bytes(body)


@pytest.fixture
def files() -> Any:
    made = Files()
    yield made
    made.door.close()


@pytest.mark.parametrize("memory", [1 << 30, 1])
def test_files_are_merged_by_time_with_the_columns_of_all(files: Files, memory: int) -> None:
    one = files.add("a.parquet", rows(5000, start=HOUR, step=1000))
    two = files.add("b.parquet", rows(5000, step=HOUR // 1000, zone=pa.array(["z"] * 5000)), group_rows=700)
    done, table = files.merge(one, two, memory_bytes=memory, row_group_rows=1500)
    times = table["time"].cast(pa.int64()).to_numpy()
    assert (np.diff(times) >= 0).all()
    assert done.row_count == table.num_rows == 10_000
    assert done.size_bytes == len(files.body)
    assert (done.min_timestamp, done.max_timestamp, done.level) == (0, int(times[-1]), 1)
    assert table["zone"].null_count == 5000
    assert done.column_stats["n"] == column_stats(0, 4999, has_nulls=False)
    meta = pq.ParquetFile(pa.BufferReader(files.body)).metadata
    assert [meta.row_group(at).num_rows for at in range(meta.num_row_groups - 1)] == [1500] * (meta.num_row_groups - 1)
    assert meta.row_group(0).sorting_columns[0].column_index == 0


@pytest.mark.parametrize("memory", [1 << 30, 1])
def test_metrics_are_sorted_by_name_then_time_and_files_that_are_not_sorted_are(files: Files, memory: int) -> None:
    names = pa.array([f"m{at % 3}" for at in range(4000)])
    mixed = files.add("a.parquet", rows(4000, metric=names), table="metrics", group_rows=500)
    ordered = rows(4000, start=5, metric=names).sort_by([("metric", "ascending"), ("time", "ascending")])
    fine = files.add("b.parquet", ordered, table="metrics", group_rows=500)
    _, table = files.merge(mixed, fine, memory_bytes=memory)
    keys = list(zip(table["metric"].to_pylist(), table["time"].cast(pa.int64()).to_pylist(), strict=True))
    assert keys == sorted(keys)
    assert Counter(table["n"].to_pylist()) == Counter(list(range(4000)) * 2)


def test_bloom_filters_are_written_again(files: Files) -> None:
    ids = pa.array([f"{at:032x}" for at in range(2000)])
    one = files.add("a.parquet", rows(2000, trace_id=ids), table="logs")
    two = files.add("b.parquet", rows(2000, trace_id=ids), table="logs")
    files.merge(one, two)
    with_filters = len(files.body)
    files.merge(one, two, bloom_probability=0.0)
    assert with_filters > len(files.body) + 1000


def test_a_source_that_is_damaged_or_gone_is_an_error_and_nothing_is_uploaded(files: Files) -> None:
    one = files.add("a.parquet", rows(10))
    two = files.add("b.parquet", rows(10))
    files.door.run(files.store.put(files.catalog.layout.key("b.parquet"), b"x" * two.size_bytes))
    with pytest.raises(Corrupt, match=r"b\.parquet"):
        files.merge(one, two)
    files.door.run(files.store.delete(files.catalog.layout.key("b.parquet")))
    with pytest.raises(NotFound):
        files.merge(one, two)
    assert not hasattr(files, "body")


def test_statistics_of_a_merge_are_those_of_its_rows_and_unknown_where_one_is() -> None:
    def file(path: str, **stats: ColumnStats) -> DataFile:
        return DataFile(path=path, min_timestamp=0, max_timestamp=1, row_count=1, size_bytes=1, column_stats=stats)

    one = file("a", n=column_stats(1, 5, has_nulls=False), f=column_stats(0.0, 1.0, has_nulls=False, has_nan=True))
    two = file("b", n=column_stats(3, 9), s=column_stats("x", "y"), f=column_stats(2.0, 3.0, has_nan=False))
    columns = {"a": frozenset({"n", "s", "f", "u"}), "b": frozenset({"n", "s", "f"})}
    found = merged_stats([one, two], columns)
    assert found["n"] == column_stats(1, 9)
    assert found["f"].has_nan is True
    assert "s" not in found
    without = merged_stats([one, two], {**columns, "a": frozenset({"n", "f"})})
    assert without["s"] == column_stats("x", "y")
    long = merged_stats(
        [file("a", s=column_stats("a" * 99, "b")), file("b", s=column_stats("c", "d"))],
        {"a": frozenset("s"), "b": frozenset("s")},
    )
    assert long["s"].min_cut
    assert not long["s"].max_cut
