"""Filters: what they mean, and what they refuse before anything is read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import InvalidInput
from penstock.vector.attributes import AttributeType
from penstock.vector.filter import And, In, Not, Or, Range, attribute, check_filter, filter_attributes, match_values

_KNOWN = {
    "lang": AttributeType.STRING,
    "stars": AttributeType.INTEGER,
    "price": AttributeType.FLOAT,
    "draft": AttributeType.BOOL,
    "at": AttributeType.TIMESTAMP,
}


def test_operators_build_the_filters_they_look_like() -> None:
    built = ((attribute("lang") == "en") | (attribute("stars") > 3)) & ~attribute("draft").is_in([True])
    assert built == And((Or((In("lang", ("en",)), Range("stars", 3, low_included=False))), Not(In("draft", (True,)))))
    assert filter_attributes(built) == {"lang", "stars", "draft"}
    assert (attribute("lang") != "en") == Not(In("lang", ("en",)))


@pytest.mark.parametrize(
    ("where", "matched"),
    [
        (attribute("stars") == 3, [3]),
        (attribute("stars").is_in([1, 5]), [1, 5]),
        (attribute("stars") < 3, [1, 2]),
        (attribute("stars") <= 3, [1, 2, 3]),
        (attribute("stars") > 3, [4, 5]),
        (attribute("stars") >= 3, [3, 4, 5]),
        (attribute("stars").between(2, 4), [2, 3, 4]),
        (attribute("stars").is_in([]), []),
    ],
)
def test_comparisons_match_as_written(where: Any, matched: list[int]) -> None:
    values = pa.array([1, 2, 3, 4, 5])
    assert values.filter(pa.array(match_values(where, AttributeType.INTEGER, values))).to_pylist() == matched


def test_ranges_work_on_texts_floats_and_moments() -> None:
    texts = pa.array(["apple", "pear", "Zebra"])
    assert match_values(attribute("lang") < "b", AttributeType.STRING, texts).tolist() == [True, False, True]
    floats = pa.array([1.5, float("nan"), 3.0])
    assert match_values(attribute("price") >= 2, AttributeType.FLOAT, floats).tolist() == [False, False, True]
    days = [datetime(year, 1, 1, tzinfo=UTC) for year in (2024, 2025)]
    moments = pa.array(days, pa.timestamp("us", tz="UTC"))
    after = attribute("at") > datetime(2024, 6, 1, tzinfo=UTC)
    assert match_values(after, AttributeType.TIMESTAMP, moments).tolist() == [False, True]
    bare = attribute("at") == datetime(2024, 1, 1)  # noqa: DTZ001 - a moment without a zone is UTC
    assert match_values(bare, AttributeType.TIMESTAMP, moments).tolist() == [True, False]


@pytest.mark.parametrize(
    ("where", "why"),
    [
        (attribute("colour") == "red", "attributes are: at, draft, lang, price, stars"),
        (attribute("stars") == "3", r"'3' \(str\): the attribute is integer"),
        (attribute("stars") == 3.5, r"3.5 \(float\)"),
        (attribute("lang") == b"en", "types of attributes are"),
        (attribute("lang").is_in(["en", None]), "types of attributes are"),
        (attribute("stars") == (1 << 70), "types of attributes are"),
        (attribute("at") > "2024-01-01", "the attribute is timestamp"),
        (attribute("draft") > True, "no order"),
        (~(attribute("stars") == "3"), "the attribute is integer"),
        (attribute("lang"), "made with attribute"),
        ("lang = 'en'", "made with attribute"),
    ],
)
def test_a_filter_that_cannot_mean_anything_is_refused(where: Any, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        check_filter(where, _KNOWN)


def test_a_filter_without_a_bottom_is_refused() -> None:
    where: Any = attribute("stars") == 1
    for _ in range(100):
        where = ~where
    with pytest.raises(InvalidInput, match="too deep"):
        check_filter(where, _KNOWN)


def test_filters_join_with_filters_only() -> None:
    with pytest.raises(InvalidInput, match="joined with 'en'"):
        (attribute("lang") == "en") & "en"  # type: ignore[operator]


def test_an_integer_bounds_a_float() -> None:
    check_filter(attribute("price") >= 3, _KNOWN)


_FLOATS = pa.array([0.0, -0.0, float("nan"), 1.0])


@pytest.mark.parametrize("zero", [0.0, -0.0, 0])
@pytest.mark.parametrize(
    ("compare", "matched"),
    [
        (lambda zero: attribute("price") == zero, [True, True, False, False]),
        (lambda zero: attribute("price").is_in([1, zero]), [True, True, False, True]),
        (lambda zero: attribute("price").between(zero, zero), [True, True, False, False]),
        (lambda zero: attribute("price") >= zero, [True, True, False, True]),
        (lambda zero: attribute("price") < zero, [False] * 4),
    ],
)
def test_zero_is_zero_whatever_its_sign(zero: float, compare: Any, matched: list[bool]) -> None:
    assert match_values(compare(zero), AttributeType.FLOAT, _FLOATS).tolist() == matched


def test_nothing_equals_what_is_no_number() -> None:
    nan = float("nan")
    for where in (attribute("price") == nan, attribute("price").between(nan, nan), attribute("price") >= nan):
        assert match_values(where, AttributeType.FLOAT, _FLOATS).tolist() == [False] * 4
    assert match_values(attribute("price").is_in([nan, 1]), AttributeType.FLOAT, _FLOATS).tolist() == [False] * 3 + [
        True
    ]


def test_an_integer_that_no_float_is_equal_to_is_refused() -> None:
    with pytest.raises(InvalidInput, match="9007199254740993"):
        check_filter(attribute("price") == 2**53 + 1, _KNOWN)


def test_a_comparison_with_none_is_refused_and_not_taken_for_an_open_end() -> None:
    """A bound that a program did not have would match every row."""
    year = attribute("year")
    for compared in (
        lambda: year < None,
        lambda: year <= None,
        lambda: year > None,
        lambda: year >= None,
        lambda: year.between(None, 3),
        lambda: year.between(3, None),
    ):
        with pytest.raises(InvalidInput, match="None is no value"):
            compared()


@pytest.mark.parametrize("values", ["en", b"en", 3, None, True])
def test_a_value_alone_is_not_taken_for_several(values: object) -> None:
    with pytest.raises(InvalidInput, match="put it into a list"):
        attribute("lang").is_in(values)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [None, 3, ["lang"], b"lang"])
def test_an_attribute_is_named_by_a_text(name: object) -> None:
    with pytest.raises(InvalidInput):
        attribute(name)  # type: ignore[arg-type]
