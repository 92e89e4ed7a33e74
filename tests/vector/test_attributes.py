"""Attributes: five types, brought to one form each, and nothing guessed."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import InvalidInput
from penstock.vector.attributes import ATTRIBUTES_MAX, AttributeType, attribute_columns, scalar_type


def columns(known: dict[str, AttributeType] | None = None, **values: Any) -> dict[str, Any]:
    arrays = [value if isinstance(value, pa.Array) else pa.array(value) for value in values.values()]
    return attribute_columns(pa.StructArray.from_arrays(arrays, names=list(values)), known or {})


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array(["a"]), "string"),
        (pa.array(["a"], pa.large_string()), "string"),
        (pa.array(["a"]).dictionary_encode(), "string"),
        (pa.array([1], pa.int8()), "integer"),
        (pa.array([1], pa.uint32()), "integer"),
        (pa.array([1.5], pa.float32()), "float"),
        (pa.array([True]), "bool"),
        (pa.array([datetime(2024, 1, 2, tzinfo=UTC)]), "timestamp"),
        (pa.array([1], pa.timestamp("s")), "timestamp"),
        (pa.array([date(2024, 1, 2)]), "timestamp"),
    ],
)
def test_arrow_types_are_brought_to_one_form_of_their_attribute_type(values: Any, kind: str) -> None:
    assert columns(value=values)["value"].type == AttributeType(kind).arrow


def test_a_moment_keeps_its_place_in_time_and_a_bare_one_is_utc() -> None:
    berlin = pa.array([1_700_000_000], pa.timestamp("s", tz="Europe/Berlin"))
    bare = pa.array([1_700_000_000_000], pa.timestamp("ms"))
    expected = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert [columns(at=values)["at"][0].as_py() for values in (berlin, bare)] == [expected, expected]


@pytest.mark.parametrize(
    "values", [pa.array([b"x"]), pa.array([[1]]), pa.array([Decimal("1.5")]), pa.array([{"a": 1}])]
)
def test_other_types_are_refused_by_name(values: Any) -> None:
    with pytest.raises(InvalidInput, match="attribute 'value' is"):
        columns(value=values)


def test_an_attribute_keeps_the_type_it_began_with() -> None:
    with pytest.raises(InvalidInput, match="in this collection it is integer"):
        columns({"stars": AttributeType.INTEGER}, stars=[1.5])


def test_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidInput, match="does not fit"):
        columns(big=pa.array([(1 << 64) - 1], pa.uint64()))


def test_a_field_without_any_value_says_nothing_about_its_type() -> None:
    assert columns({"stars": AttributeType.INTEGER}, stars=pa.nulls(2), other=pa.array([None, None], pa.binary())) == {}


def test_too_many_attributes_and_names_that_are_empty_or_twice_are_refused() -> None:
    with pytest.raises(InvalidInput, match=f"at most {ATTRIBUTES_MAX}"):
        columns(**{f"a{number}": [1] for number in range(ATTRIBUTES_MAX + 1)})  # type: ignore[arg-type]
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(InvalidInput, match="occur once"):
        attribute_columns(twice, {})


def test_python_values_have_the_types_of_attributes_or_none() -> None:
    values: list[object] = [
        True,
        1,
        1.0,
        "a",
        datetime(2024, 1, 1, tzinfo=UTC),
        1 << 64,
        None,
        b"x",
        [1],
        date(2024, 1, 1),
    ]
    assert [scalar_type(value) for value in values] == [
        AttributeType.BOOL,
        AttributeType.INTEGER,
        AttributeType.FLOAT,
        AttributeType.STRING,
        AttributeType.TIMESTAMP,
        *[None] * 5,
    ]
