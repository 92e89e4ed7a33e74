"""Rows become data files by tenant, table and hour: sorted, bounded, the same each time, readable by others."""

from __future__ import annotations

import io
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.telemetry.samples import SOURCE, every_kind_of_metric, some_logs, some_spans

from penstock.errors import InvalidInput
from penstock.records import Signal
from penstock.telemetry import (
    ColumnBounds,
    DataFileConfig,
    EncodedFile,
    FilePlace,
    Partition,
    decode_otlp,
    encode_files,
    partitioned,
    unified,
)
from penstock.telemetry.data_files import HOUR_NS, path_of

PLACE = FilePlace("queue", 41, 43)
TIMES = pa.timestamp("ns", tz="UTC")


def test_rows_go_to_their_tenant_and_hour_and_none_is_lost() -> None:
    chance = np.random.default_rng(3)
    times = chance.integers(0, 5 * HOUR_NS, 1000)
    tenants = [f"t{number}" for number in chance.integers(0, 3, 1000)]
    table = pa.table({"tenant": tenants, "time": pa.array(times, TIMES), "n": range(1000)})
    parts = partitioned(table, "logs", 0)
    assert [one for one, _ in parts] == sorted(
        {Partition(a, "logs", int(b) // HOUR_NS * HOUR_NS) for a, b in zip(tenants, times, strict=True)}
    )
    assert Counter(n for _, part in parts for n in part.column("n").to_pylist()) == Counter(range(1000))
    for partition, part in parts:
        assert set(part.column("tenant").to_pylist()) == {partition.tenant}


def test_metrics_are_sorted_by_name_and_time() -> None:
    table = pa.table(
        {
            "tenant": ["t"] * 4,
            "time": pa.array([3, 1, 2, 1], TIMES),
            "metric": ["b", "b", "a", "b"],
            "n": [0, 1, 2, 3],
        }
    )
    rows = _read(_files(table, "metrics")[0])
    # Rows that compare as equal stay in the order in which they came.
    assert rows.column("n").to_pylist() == [2, 1, 3, 0]


def test_names_follow_from_the_place_in_the_queue() -> None:
    partition = Partition("acme", "metrics", 1_763_326_800_000_000_000 // HOUR_NS * HOUR_NS)
    assert path_of(partition, PLACE) == (
        "acme/metrics/2025/11/16/21/queue-00000000000000000041-00000000000000000043-0-0.parquet"
    )


@pytest.mark.parametrize("tenant", ["", ".", "..", "a/b", "../x", "ü", "a b", "%2F", "_", "CON", "a" * 200])
def test_any_tenant_has_a_path_of_its_own_that_stays_in_its_folder(tenant: str) -> None:
    path = path_of(Partition(tenant, "logs", 0), PLACE)
    assert path.count("/") == 6
    assert all(segment not in ("", ".", "..") for segment in path.split("/"))
    assert path.isascii()


def test_tenants_never_share_a_path() -> None:
    tenants = ["", "_", ".", "..", "%2E", "a", "A", "a.b", "a/b", "%5F", "._", "_."]
    assert len({path_of(Partition(tenant, "logs", 0), PLACE) for tenant in tenants}) == len(tenants)


@pytest.mark.parametrize(
    ("signal", "request_"),
    [(Signal.METRICS, every_kind_of_metric), (Signal.LOGS, some_logs), (Signal.TRACES, some_spans)],
)
def test_every_signal_survives_parquet_and_the_bytes_are_the_same_each_time(signal: Signal, request_: object) -> None:
    batch = decode_otlp(signal, request_().SerializeToString(), SOURCE).batch  # type: ignore[operator]
    table = pa.Table.from_batches([batch])
    once, again = _files(table, signal.name.lower()), _files(table, signal.name.lower())
    assert [file.body for file in once] == [file.body for file in again]
    found = pa.concat_tables([_read(file) for file in once])
    assert Counter(map(repr, found.to_pylist())) == Counter(map(repr, table.to_pylist()))


def test_bounds_are_of_the_rows_and_prove_nothing_about_what_is_not_there() -> None:
    table = pa.table(
        {
            "tenant": ["t"] * 3,
            "time": pa.array([5, 7, 6], TIMES),
            "f": [1.5, float("nan"), -2.0],
            "only_nan": [float("nan")] * 3,
            "text": ["b", None, "a"],
            "none": pa.nulls(3, pa.int64()),
            "list": [[1], [2], []],
            "flag": [True, False, True],
        }
    )
    file = _files(table, "mine")[0]
    assert file.bounds["time"] == ColumnBounds(5, 7, has_nulls=False, type="timestamp")
    assert file.bounds["f"] == ColumnBounds(-2.0, 1.5, has_nulls=False, has_nan=True)
    assert file.bounds["only_nan"].has_nan
    assert file.bounds["text"] == ColumnBounds("a", "b", has_nulls=True)
    assert file.bounds["none"] == ColumnBounds(None, None, has_nulls=True, all_null=True)
    assert file.bounds["flag"] == ColumnBounds(False, True, has_nulls=False)
    assert "list" not in file.bounds
    assert (file.min_time_ns, file.max_time_ns, file.rows) == (5, 7, 3)


def test_a_table_without_times_belongs_to_when_it_came() -> None:
    for column in ({}, {"time": ["noon"]}):
        table = pa.table({"tenant": ["t"], "a": [1], **column})
        (partition, part), *_ = partitioned(table, "mine", 7 * HOUR_NS + 5)
        assert partition.hour_ns == 7 * HOUR_NS
        file = next(encode_files(partition, part, PLACE, 7 * HOUR_NS + 5))
        assert file.min_time_ns == 7 * HOUR_NS + 5


def test_times_of_other_units_are_understood() -> None:
    table = pa.table({"tenant": ["t"], "time": pa.array([3600], pa.timestamp("s"))})
    assert partitioned(table, "mine", 0)[0][0].hour_ns == HOUR_NS
    far = pa.table({"tenant": ["t"], "time": pa.array([10**11], pa.timestamp("s"))})
    with pytest.raises(InvalidInput, match="2262"):
        partitioned(far, "mine", 0)


def test_very_many_rows_go_into_several_files() -> None:
    table = pa.table({"tenant": ["t"] * 25, "time": pa.array(range(25), TIMES)})
    files = list(encode_files(Partition("t", "logs", 0), table, PLACE, 0, DataFileConfig(rows_max=10)))
    assert [file.rows for file in files] == [10, 10, 5]
    assert len({file.path for file in files}) == 3


def test_rows_without_a_tenant_are_refused() -> None:
    with pytest.raises(InvalidInput, match="tenant"):
        partitioned(pa.table({"a": [1]}), "mine", 0)


def test_bloom_filters_are_where_values_are_looked_up() -> None:
    table = pa.Table.from_batches([decode_otlp(Signal.TRACES, some_spans().SerializeToString(), SOURCE).batch])
    with_filter, without = (
        next(encode_files(Partition("acme", "traces", 0), table, PLACE, 0, DataFileConfig(bloom_probability=chance)))
        for chance in (0.01, 0.0)
    )
    assert len(with_filter.body) > len(without.body)


def test_new_columns_are_united_and_a_conflict_of_types_is_named() -> None:
    found = unified([pa.table({"a": [1]}), pa.table({"a": [2], "b": ["x"]})])
    assert found.to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    with pytest.raises(InvalidInput, match="'a' has type string"):
        unified([pa.table({"a": [1]}), pa.table({"a": ["x"]})])


def test_another_engine_reads_the_files(tmp_path: object) -> None:
    duckdb = pytest.importorskip("duckdb")
    table = pa.Table.from_batches(
        [decode_otlp(Signal.METRICS, every_kind_of_metric().SerializeToString(), SOURCE).batch]
    )
    path = tmp_path / "x.parquet"  # type: ignore[operator]
    path.write_bytes(_files(table, "metrics")[0].body)
    found = duckdb.sql(f"SELECT metric, labels['host'] FROM '{path}' WHERE labels['host'] IS NOT NULL").fetchall()
    assert found == [("cpu.load", "a")]


def _files(table: pa.Table, name: str) -> list[EncodedFile]:
    return [file for partition, part in partitioned(table, name, 0) for file in encode_files(partition, part, PLACE, 0)]


def _read(file: EncodedFile) -> pa.Table:
    return pq.read_table(io.BytesIO(file.body))
