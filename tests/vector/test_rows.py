"""Input rows: all fit to be stored, or refused with the first that is not named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import InvalidInput
from penstock.vector.format.metric import DistanceMetric
from penstock.vector.rows import prepared_queries, read_rows

Make = Callable[..., pa.Table]


def read(table: Any, dimensions: int = 2, metric: DistanceMetric = DistanceMetric.L2) -> Any:
    return read_rows(table, dimensions, metric, {})


def test_rows_are_read_with_texts_and_attributes(rows: Make) -> None:
    found = read(rows(["a", "b"], [[1, 2], [3, 4]], ["x", None], stars=[5, None]))
    assert found.names.to_pylist() == ["a", "b"]
    assert found.vectors.tolist() == [[1, 2], [3, 4]]
    assert found.texts.to_pylist() == ["x", None]
    assert found.attributes["stars"].to_pylist() == [5, None]


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64(), pa.int32()])
@pytest.mark.parametrize("listed", [pa.list_, pa.large_list, lambda value: pa.list_(value, 2)])
def test_vectors_may_be_lists_of_any_numbers(kind: pa.DataType, listed: Any) -> None:
    values = np.array([[1, 2], [3, 4]], kind.to_pandas_dtype())
    table = pa.table({"id": ["a", "b"], "vector": pa.array(list(values), listed(kind))})
    assert read(table).vectors.tolist() == [[1, 2], [3, 4]]


def test_chunked_and_sliced_tables_are_read_as_what_they_show(rows: Make) -> None:
    table = pa.concat_tables([rows(["a", "b"], [[1, 2], [3, 4]]), rows(["c", "d"], [[5, 6], [7, 8]])]).slice(1, 2)
    assert read(table).vectors.tolist() == [[3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("vector", "why"),
    [
        ([1.0], "it has 1 dimensions, and the collection 2"),
        ([1.0, 2.0, 3.0], "it has 3 dimensions"),
        (None, "it is missing, and there is no text"),
        ([1.0, None], "a component is missing"),
        ([1.0, float("nan")], "NaN or infinity"),
        ([float("-inf"), 1.0], "NaN or infinity"),
        ([1e39, 1.0], "NaN or infinity"),
        ([2e15, 0.0], "beyond"),
    ],
)
def test_a_vector_that_cannot_be_compared_is_refused_by_its_rows_name(vector: Any, why: str) -> None:
    table = pa.table({"id": ["fine", "bad"], "vector": pa.array([[1.0, 2.0], vector], pa.list_(pa.float64()))})
    with pytest.raises(InvalidInput, match=f"'bad'.*{why}"):
        read(table)


def test_a_zero_vector_has_no_cosine(rows: Make) -> None:
    with pytest.raises(InvalidInput, match=r"'b'.*all zero"):
        read(rows(["a", "b"], [[1, 0], [0, 0]]), metric=DistanceMetric.COSINE)
    assert len(read(rows(["a", "b"], [[1, 0], [0, 0]]))) == 2


def test_an_id_twice_in_one_call_is_refused_by_name(rows: Make) -> None:
    with pytest.raises(InvalidInput, match="id 'b' occurs twice"):
        read(rows(["a", "b", "b"], np.ones((3, 2))))


@pytest.mark.parametrize(
    ("ids", "why"),
    [
        (pa.array(["a", None]), "id of row 1 is missing"),
        (pa.array(["a", ""]), "id of row 1 is missing"),
        (pa.array(["a", "x" * 1025]), "at most 1024 bytes"),
        (pa.array([1, 2]), "an id is a string"),
    ],
)
def test_ids_that_are_none_are_refused(rows: Make, ids: Any, why: str) -> None:
    table = rows(["a", "b"], np.ones((2, 2))).set_column(0, "id", ids)
    with pytest.raises(InvalidInput, match=why):
        read(table)


def test_columns_are_the_known_ones(rows: Make) -> None:
    with pytest.raises(InvalidInput, match="columns colour"):
        read(rows(["a"], [[1, 2]]).append_column("colour", pa.array(["red"])))
    with pytest.raises(InvalidInput, match="no column 'vector'"):
        read(pa.table({"id": ["a"]}))
    with pytest.raises(InvalidInput, match="texts are int64"):
        read(rows(["a"], [[1, 2]]).append_column("text", pa.array([1])))
    with pytest.raises(InvalidInput, match="attributes are string"):
        read(rows(["a"], [[1, 2]]).append_column("attributes", pa.array(["x"])))


@pytest.mark.parametrize(
    ("vectors", "why"),
    [
        ([[1.0, 2.0, 3.0]], "shape"),
        ("text", "not a matrix"),
        ([[1.0, float("nan")]], "query vector 0.*NaN"),
        ([[1.0, 1.0], [0.0, 0.0]], "query vector 1.*zero"),
    ],
)
def test_queries_are_checked_as_rows_are(vectors: Any, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        prepared_queries(vectors, 2, DistanceMetric.COSINE)


def test_one_query_may_come_without_its_brackets() -> None:
    assert prepared_queries([1.0, 2.0], 2, DistanceMetric.L2).tolist() == [[1.0, 2.0]]
