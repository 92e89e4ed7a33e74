"""Pruning: a file that holds a matching row is never dropped, whatever lies in it and whatever is asked."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.campaigns import examples
from tests.catalog.samples import data_file

from penstock.catalog import ColumnStats, Predicate, column_stats
from penstock.catalog.change.predicate import parse_predicate, surviving
from penstock.catalog.change.selection import FileQuery, select
from penstock.catalog.format.block import FileBlock, Row
from penstock.catalog.format.data_file import decode_file, encode_file
from penstock.catalog.format.head import CatalogHead, inline_file, with_inline
from penstock.catalog.format.segment import decode_segment, encode_segment, entry_of
from penstock.errors import InvalidInput


def kept(stats: ColumnStats, op: str, value: Any = None) -> bool:
    block = FileBlock.of([Row(data_file(0, column_stats={"x": stats}))])
    return len(surviving(block, np.zeros(1, np.int64), [Predicate("x", op, value)])) == 1


EDGES = [0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 10**30]
FLOATS = [0.0, -0.0, 1.0, 0.5, 2.0**53, 2.0**53 + 2, 1e300, -1e300, math.inf, -math.inf, math.nan, 5e-324]
integers = st.one_of(st.sampled_from(EDGES), st.integers(-5, 5), st.integers(-(2**64), 2**64))
floats = st.one_of(st.sampled_from(FLOATS), st.floats())
texts = st.one_of(
    st.sampled_from(["", "a", "b", "a" * 64, "a" * 65, "a" * 64 + "b", "\U0010ffff" * 70, "\ud7ff" * 66, "é", "z"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=80),
)
numbers = st.one_of(integers, floats)
COLUMNS = [st.lists(integers), st.lists(floats), st.lists(numbers), st.lists(texts), st.lists(st.booleans())]
values = st.one_of(numbers, texts, st.booleans())


def stats_of(column: list[Any], *, with_null: bool) -> ColumnStats:
    """As a careful writer makes them: bounds over all values but NaN."""
    real = [value for value in column if not (isinstance(value, float) and math.isnan(value))]
    has_nan = len(real) < len(column)
    return column_stats(
        min(real, default=None),
        max(real, default=None),
        has_nulls=with_null,
        has_nan=has_nan if any(isinstance(value, float) for value in column) else None,
        all_null=not column,
    )


def order(value: Any) -> tuple[int, Any]:
    """NaN above every number, as Spark and DuckDB order it."""
    return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)


def matches(op: str, row: Any, value: Any) -> bool:
    if op == "is_null":
        return row is None
    if op == "is_not_null":
        return row is not None
    if row is None:
        return False
    if op == "in":
        return any(matches("=", row, one) for one in value)
    if type(row) is not type(value) and not ({type(row), type(value)} <= {int, float}):
        return False
    if op == "starts_with":
        return isinstance(row, str) and row.startswith(value)
    left, right = order(row), order(value)
    return bool(
        {
            "=": left == right,
            "!=": left != right,
            "<": left < right,
            "<=": left <= right,
            ">": left > right,
            ">=": left >= right,
        }[op]
    )


@settings(max_examples=examples(1500))
@given(
    column=st.one_of(COLUMNS), null=st.booleans(), op=st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), value=values
)
def test_a_matching_file_is_never_dropped(column: list[Any], null: bool, op: str, value: Any) -> None:
    rows = [*column, None] if null or not column else column
    if any(matches(op, row, value) for row in rows):
        assert kept(stats_of(column, with_null=null or not column), op, value)


@settings(max_examples=examples(300))
@given(column=st.one_of(COLUMNS), null=st.booleans(), chosen=st.lists(values, max_size=100))
def test_a_file_that_matches_one_of_many_values_is_never_dropped(
    column: list[Any], null: bool, chosen: list[Any]
) -> None:
    rows = [*column, None] if null or not column else column
    if any(matches("in", row, chosen) for row in rows):
        assert kept(stats_of(column, with_null=null or not column), "in", chosen)


@settings(max_examples=examples(300))
@given(column=st.lists(texts), prefix=texts)
def test_a_file_with_a_matching_prefix_is_never_dropped(column: list[str], prefix: str) -> None:
    if any(row.startswith(prefix) for row in column):
        assert kept(stats_of(column, with_null=False), "starts_with", prefix)


@settings(max_examples=examples(200))
@given(column=st.one_of(COLUMNS), null=st.booleans(), op=st.sampled_from(["is_null", "is_not_null"]))
def test_a_file_is_never_dropped_for_nulls_it_has_or_values_it_has(column: list[Any], null: bool, op: str) -> None:
    rows = [*column, None] if null or not column else column
    if any(matches(op, row, None) for row in rows):
        assert kept(stats_of(column, with_null=null or not column), op)


@settings(max_examples=examples(200))
@given(
    columns=st.lists(st.one_of(COLUMNS), min_size=1, max_size=6),
    op=st.sampled_from(["=", "<", ">=", "!="]),
    value=values,
)
def test_what_survives_is_the_same_inline_in_json_and_in_a_segment(
    columns: list[list[Any]], op: str, value: Any
) -> None:
    files = [
        data_file(number, column_stats={"x": stats_of(column, with_null=not column)})
        for number, column in enumerate(columns)
    ]
    assert [decode_file(encode_file(file)) for file in files] == files
    block = FileBlock.of([Row(file) for file in files])
    body = encode_segment(block, "n")
    entry = entry_of(block, body, "metadata")
    stored = decode_segment(body, entry)
    everything = np.arange(len(files))
    assert stored.files(everything) == files
    predicates = [Predicate("x", op, value)]
    expected = [file for file in files if kept(file.column_stats["x"], op, value)]
    assert block.files(surviving(block, everything, predicates)) == expected
    assert stored.files(surviving(stored, everything, predicates)) == expected
    # Skipping a whole segment by its own bounds hides nothing.
    query = FileQuery(predicates=tuple(predicates))
    inline = with_inline(CatalogHead(version=3), [inline_file(file, 1) for file in files])
    moved = CatalogHead(version=3, segments=(entry,))
    for head in (inline, moved):
        found = [file for piece in select(head, query, {entry.key: stored}) for file in piece.block.files(piece.rows)]
        assert found == expected


@pytest.mark.parametrize(
    ("op", "value", "keeps"),
    [
        ("<", 10, False),
        ("<=", 10, True),
        ("<", 11, True),
        (">", 20, False),
        (">=", 20, True),
        (">", 19, True),
        ("=", 9, False),
        ("=", 10, True),
        ("=", 20.5, False),
        ("!=", 10, True),
        ("in", [1, 2], False),
        ("in", [1, 15], True),
        ("in", [*range(-100, 0)], False),
        ("in", [], False),
        ("is_null", None, False),
        ("is_not_null", None, True),
        ("=", "10", True),
        ("=", True, True),
        ("<", math.nan, True),
    ],
)
def test_statistics_prune_to_the_very_edge(op: str, value: Any, keeps: bool) -> None:
    assert kept(column_stats(10, 20, has_nulls=False), op, value) is keeps


def test_only_what_is_proved_is_dropped() -> None:
    assert kept(ColumnStats(), "=", 1)
    assert kept(ColumnStats(min=5), "<", 6)
    assert not kept(ColumnStats(min=5), "<", 5)
    assert kept(ColumnStats(max=5), "<", 5)
    # NaN is above all numbers, and these may hold one.
    assert kept(column_stats(1.0, 2.0), ">", 3)
    assert kept(column_stats(1.0, 2.0, has_nan=True), ">", 3)
    assert not kept(column_stats(1.0, 2.0, has_nan=False), ">", 3)
    assert not kept(column_stats(1.0, 2.0), "<", 1)
    assert kept(column_stats(1.0, 1.0), "!=", 1)
    assert not kept(column_stats(1.0, 1.0, has_nan=False), "!=", 1)
    assert kept(column_stats(0, 0, has_nulls=False, has_nan=True), "!=", 0)
    # Cut bounds are not values.
    long = column_stats("a" * 70, "a" * 70, has_nulls=False)
    assert (long.min_cut, long.max_cut, long.max) == (True, True, "a" * 63 + "b")
    assert kept(long, "!=", "a" * 64)
    assert kept(long, "=", "a" * 70)
    assert not kept(long, ">", "b")


def test_a_datetime_stands_for_its_nanoseconds() -> None:
    moment = datetime(2026, 2, 6, 10, tzinfo=UTC)
    nanoseconds = int(moment.timestamp()) * 10**9
    stats = column_stats(nanoseconds, nanoseconds + 5, type="timestamp")
    assert kept(stats, "<=", moment)
    assert not kept(stats, "<", moment)
    with pytest.raises(InvalidInput, match="zone"):
        Predicate("x", "<", datetime(2026, 2, 6))  # noqa: DTZ001  the very thing that is refused


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("status>=500", Predicate("status", ">=", 500)),
        ("name=api", Predicate("name", "=", "api")),
        ('name="5"', Predicate("name", "=", "5")),
        ("name^=ap", Predicate("name", "starts_with", "ap")),
        ("a b != 1.5", Predicate("a b", "!=", 1.5)),
        ("x IS NULL", Predicate("x", "is_null")),
        ("x is not null", Predicate("x", "is_not_null")),
    ],
)
def test_a_predicate_is_read_from_text(text: str, expected: Predicate) -> None:
    assert parse_predicate(text) == expected


@pytest.mark.parametrize("text", ["", "x", "=1", "is null"])
def test_text_that_is_no_predicate_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_predicate(text)


@pytest.mark.parametrize(("op", "value"), [("~", 1), ("in", "abc"), ("starts_with", 1), ("=", None), ("=", [1])])
def test_a_predicate_that_cannot_be_decided_is_refused(op: str, value: Any) -> None:
    with pytest.raises(InvalidInput):
        Predicate("x", op, value)


def test_statistics_whose_least_is_above_their_greatest_are_refused() -> None:
    for low, high in ((5, 1), (1.5, 1), ("b", "a")):
        with pytest.raises(InvalidInput):
            column_stats(low, high)
    assert column_stats(1, 1).max == 1


class _CountedTable:
    """A table that counts how often it is asked for the names of its columns, which is a list made anew each time."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.asked = 0

    @property
    def column_names(self) -> list[str]:
        self.asked += 1
        names: list[str] = self._table.column_names
        return names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def __getitem__(self, name: str) -> Any:
        return self._table[name]


def test_statistics_of_many_columns_take_one_look_at_their_names() -> None:
    """One look for each column made the first plan of a table with 2,000 columns take 16 seconds."""
    stats = {f"c{number}": column_stats(number, number + 1) for number in range(50)}
    block = FileBlock.of([Row(data_file(0, column_stats=stats))])
    counted: Any = _CountedTable(block.table)
    block.table = counted
    (found,) = block.files(np.arange(1))
    assert found.column_stats == stats
    assert counted.asked <= 2
