"""Columns that would make a table unreadable are refused when they come, by name; all others are taken."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.telemetry.samples import SOURCE

from penstock.errors import InvalidInput
from penstock.records import Signal
from penstock.telemetry import decode_arrow, decode_json_lines, encode_arrow
from penstock.telemetry.columns.storable import rows_with_repeated_keys, unstorable

# Types that the stubs of Arrow do not foresee.
arrow: Any = pa


def nested(kind: Any, depth: int) -> Any:
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


@pytest.mark.parametrize(
    "kind",
    [
        pa.decimal256(40, 2),
        pa.decimal256(5, 2),
        pa.decimal128(10, -2),
        pa.float16(),
        pa.month_day_nano_interval(),
        pa.list_view(pa.int8()),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.sparse_union([pa.field("a", pa.int8())]),
        arrow.dictionary(pa.int8(), pa.list_(pa.int8())),
        pa.struct([]),
        pa.struct([("a", pa.int8()), ("a", pa.int8())]),
        pa.list_(pa.int8(), 0),
        pa.list_(pa.struct([("a", pa.decimal256(40, 2))])),
        pa.map_(pa.string(), pa.float16()),
        nested(pa.int8(), 33),
    ],
    ids=str,
)
def test_a_type_that_cannot_be_read_again_is_refused_with_its_column(kind: Any) -> None:
    assert unstorable(pa.schema([("a", pa.null()), ("v", kind)])).startswith("column 'v' has type")


@pytest.mark.parametrize(
    "kind",
    [
        pa.decimal128(38, 2),
        pa.decimal32(5, 2),
        pa.duration("ns"),
        pa.time32("s"),
        pa.string_view(),
        pa.large_list(pa.large_string()),
        pa.dictionary(pa.int8(), pa.string()),
        pa.map_(pa.int32(), pa.list_(pa.struct([("a", pa.uuid())]))),
        pa.timestamp("s", tz="+05:45"),
        nested(pa.int8(), 32),
    ],
    ids=str,
)
def test_all_other_types_are_taken(kind: Any) -> None:
    assert not unstorable(pa.schema([("v", kind)]))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a", "A"], "'a' and 'A' differ in case alone"),
        (["Tenant"], "'tenant' and 'Tenant' differ in case alone"),
        (["a\0b"], "null character"),
        (["x" * 5000], "more than 4,096 bytes"),
        ([""], "no name"),
    ],
)
def test_names_that_sql_cannot_speak_of_are_refused(names: list[str], words: str) -> None:
    table = pa.Table.from_arrays([pa.array([1])] * len(names), names=names)
    with pytest.raises(InvalidInput, match=words):
        decode_arrow(encode_arrow(table), SOURCE)


TWICE = [("a", 1), ("b", 2), ("a", 3)]
ONCE = [("a", 1), ("b", 2)]
MAP: Any = pa.map_(pa.string(), pa.int64())


@pytest.mark.parametrize(
    "column",
    [
        pa.array([ONCE, TWICE, None, [], ONCE], MAP),
        pa.array([[ONCE], [ONCE, TWICE], None, [], [None]], pa.list_(MAP)),
        pa.array([{"m": ONCE}, {"m": TWICE}, None, {"m": None}, {"m": []}], pa.struct([("m", MAP)])),
        pa.array([[("k", ONCE)], [("k", TWICE)], None, [], []], pa.map_(pa.string(), MAP)),
        pa.array(
            [[({"k": 1}, 1)], [({"k": 1}, 1), ({"k": 1}, 2)], None, [], []],
            pa.map_(pa.struct([("k", pa.int8())]), pa.int8()),
        ),
        pa.array([[(1.0, 1)], [(float("nan"), 1), (float("nan"), 2)], None, [], []], pa.map_(pa.float64(), pa.int8())),
        pa.chunked_array([pa.array([ONCE], MAP), pa.array([ONCE, TWICE, None, [], ONCE], MAP).slice(1)]),
    ],
    ids=lambda column: str(column.type),
)
def test_maps_in_which_a_key_occurs_twice_are_found_however_deep(column: Any) -> None:
    assert rows_with_repeated_keys(column).tolist() == [False, True, False, False, False]


def test_a_map_in_which_a_key_occurs_twice_is_refused_also_in_the_table_of_a_signal() -> None:
    labels = pa.array([[("a", "1"), ("a", "2")]], pa.map_(pa.string(), pa.string()))
    with pytest.raises(InvalidInput, match="'mine' has a map with a duplicate key"):
        decode_arrow(encode_arrow(pa.table({"mine": labels})), SOURCE)
    logs = pa.table({"time": pa.array([5], pa.timestamp("ns", tz="UTC")), "attributes": labels})
    with pytest.raises(InvalidInput, match="'attributes' of logs has a map with a duplicate key"):
        decode_arrow(encode_arrow(logs), SOURCE, Signal.LOGS)


def test_json_that_is_nested_too_deep_for_parquet_is_refused_and_an_object_without_fields_is_none() -> None:
    deep = b'{"a": ' + b"[" * 40 + b"1" + b"]" * 40 + b"}"
    with pytest.raises(InvalidInput, match="more than 32 levels deep"):
        decode_json_lines(deep, SOURCE)
    batch = decode_json_lines(b'{"n": 1, "about": {}}\n{"n": 2}\n', SOURCE).batch
    assert batch.to_pylist() == [
        {"tenant": "acme", "n": 1, "about": None},
        {"tenant": "acme", "n": 2, "about": None},
    ]


def test_a_decimal_of_38_digits_is_kept_to_the_digit() -> None:
    value = Decimal("12345678901234567890123456789012345.678")
    table = pa.table({"v": pa.array([value], pa.decimal128(38, 3))})
    assert decode_arrow(encode_arrow(table), SOURCE).batch.column("v").to_pylist() == [value]
