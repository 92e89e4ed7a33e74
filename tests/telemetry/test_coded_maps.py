"""Maps as numbers: whatever is done with the numbers, the rows, their series and their files stay the same."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.telemetry.samples import SOURCE, every_kind_of_metric

from penstock.records import Signal
from penstock.telemetry import (
    METRICS,
    DataFileConfig,
    FilePlace,
    Partition,
    coded_maps,
    decode_otlp,
    encode_files,
    plain_maps,
    series_of,
)
from penstock.telemetry.columns.coded_maps import is_coded

MAPS: Any = pa.map_(pa.string(), pa.string())
PLACE = FilePlace("queue", 1, 2)


def maps_of(seed: int, rows: int, sets: int) -> list[Any]:
    """Maps of any length, among them none and empty ones, with texts that put together are alike."""
    chance = np.random.default_rng(seed)
    pool: list[Any] = [None, [], [("a", "bc")], [("ab", "c")], [("a", "b"), ("c", "")], [("a", ""), ("b", "c")]]
    pool += [[(f"k{place}", f"välue{number}") for place in range(number % 4)] for number in range(sets)]
    return [pool[place] for place in chance.integers(0, len(pool), rows)]


def table_of(chunks: list[list[Any]]) -> pa.Table:
    maps: Any = pa.chunked_array([pa.array(chunk, MAPS) for chunk in chunks], type=MAPS)
    return pa.table({"n": pa.array(range(len(maps))), "labels": maps, "other": pa.array([1.5] * len(maps))})


@pytest.mark.parametrize("sizes", [[1], [0, 5, 0], [400], [100, 1, 300], [2] * 50])
@pytest.mark.parametrize("sets", [1, 7, 1000])
def test_coded_rows_are_the_rows(sizes: list[int], sets: int) -> None:
    table = table_of([maps_of(number, size, sets) for number, size in enumerate(sizes)])
    coded = coded_maps(table)
    assert is_coded(coded.schema.field("labels").type)
    assert plain_maps(coded).to_pylist() == table.to_pylist()
    order: Any = pa.array(np.random.default_rng(9).permutation(table.num_rows))
    assert plain_maps(coded.take(order)).to_pylist() == table.take(order).to_pylist()


def test_a_slice_of_a_column_is_coded_as_what_it_shows() -> None:
    table = table_of([maps_of(1, 300, 5)]).slice(17, 90)
    assert plain_maps(coded_maps(table)).to_pylist() == table.to_pylist()


def test_maps_that_are_not_of_strings_or_have_null_values_stay_as_they_are() -> None:
    table = pa.table(
        {
            "nulls": pa.array([[("a", None)], [("a", "")]], MAPS),
            "numbers": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
            "list": [[1], [2]],
        }
    )
    assert coded_maps(table).equals(table)
    assert coded_maps(table.slice(0, 0)).equals(table.slice(0, 0))


@pytest.mark.cases(quick=1)
@pytest.mark.parametrize("sets", [1, 50, 100_000])
def test_a_file_of_coded_rows_reads_as_one_of_the_rows_themselves(sets: int) -> None:
    rows = 3000
    table = table_of([maps_of(1, rows // 2, sets), maps_of(2, rows // 2, sets)])
    table = table.append_column("tenant", pa.array(["acme"] * rows)).append_column("resource", table.column("labels"))
    table = table.replace_schema_metadata({b"penstock.signal": b"metrics", b"raw": b"\xff"})
    files = [next(encode_files(Partition("acme", "mine", 0), one, PLACE, 0)) for one in (table, coded_maps(table))]
    plain, coded = (pq.read_table(io.BytesIO(file.body)) for file in files)
    assert coded.equals(plain, check_metadata=True)
    other = io.BytesIO()
    pq.write_table(table, other)
    assert coded.equals(pq.read_table(other), check_metadata=True)
    assert files[0].bounds == files[1].bounds
    again = next(encode_files(Partition("acme", "mine", 0), coded_maps(table), PLACE, 0))
    assert again.body == files[1].body


def test_a_row_group_holds_the_labels_of_its_own_rows() -> None:
    table = pa.table(
        {"tenant": ["acme"] * 40, "labels": pa.array([[("host", f"h{number}")] for number in range(40)], MAPS)}
    )
    config = DataFileConfig(row_group_rows=10)
    (file,) = encode_files(Partition("acme", "mine", 0), coded_maps(table), PLACE, 0, config)
    opened = pq.ParquetFile(io.BytesIO(file.body))
    assert opened.num_row_groups == 4
    assert opened.read().column("labels").to_pylist() == table.column("labels").to_pylist()
    sizes = [opened.metadata.row_group(number).total_byte_size for number in range(4)]
    assert max(sizes) - min(sizes) < 20


def test_series_of_coded_rows_are_the_series_of_the_rows() -> None:
    batch = decode_otlp(Signal.METRICS, every_kind_of_metric().SerializeToString(), SOURCE).batch
    table = pa.concat_tables([pa.Table.from_batches([batch])] * 3).combine_chunks()
    plain, coded = (series_of(one.to_batches()[0]) for one in (table, coded_maps(table).combine_chunks()))
    assert coded.labels.to_pylist() == plain.labels.to_pylist()
    for name in ("series", "time_ms", "value", "is_delta"):
        np.testing.assert_array_equal(getattr(coded, name), getattr(plain, name))
    assert coded.refused == plain.refused


def test_rows_without_labels_and_with_none_are_one_series() -> None:
    columns: dict[str, Any] = {
        "tenant": "acme",
        "time": 1,
        "metric": "up",
        "type": "gauge",
        "convention": "prometheus",
        "value": 1.0,
    }
    given = [None, [], [("a", "b")], None, []]
    table = pa.Table.from_pylist([{**columns, "labels": one} for one in given], METRICS)
    found = series_of(coded_maps(table).to_batches()[0])
    assert found.series.tolist() == [0, 0, 1, 0, 0]
    assert found.labels.to_pylist() == [[("__name__", "up")], [("__name__", "up"), ("a", "b")]]
