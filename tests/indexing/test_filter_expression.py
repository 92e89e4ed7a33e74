"""A filter means what a reader of it would think, and what cannot be read is refused with its place."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.indexing import parse_filter
from penstock.vector import And, Filter, In, Not, Or, Range, attribute

KEY, BUCKET, START = attribute("key"), attribute("bucket"), attribute("start")
INFINITE = math.inf


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("key = 'a.md'", KEY == "a.md"),
        ('key == "a.md"', KEY == "a.md"),
        ("key = 'it''s'", KEY == "it's"),
        ("bucket in ('x','y')", BUCKET.is_in(["x", "y"])),
        ("bucket NOT IN ('x')", ~BUCKET.is_in(["x"])),
        ("start >= 1000 and not key = 'b'", (START >= 1000) & ~(KEY == "b")),
        ("start<-1.5e3", START < -1500.0),
        ("start between 1 and 2 and draft = false", START.between(1, 2) & (attribute("draft") == False)),  # noqa: E712
        ("key != 'a' or key <> 'b'", Not(KEY == "a") | Not(KEY == "b")),
        ("key='a' or key='b' and start>1", (KEY == "a") | ((KEY == "b") & (START > 1))),
        ("(key='a' or key='b') and start<=1", ((KEY == "a") | (KEY == "b")) & (START <= 1)),
        ("not not key='a'", Not(Not(KEY == "a"))),
        (f"start > {'9' * 400}", START > INFINITE),
        (f"start > -{'9' * 5000}", START > -INFINITE),
        (f"start > {'0' * 40}7", START > 7),
        (f"start > {1 << 63}", START > 2.0**63),
        ("größe.in-mm > 1", attribute("größe.in-mm") > 1),
        ("key is null or start IS NOT NULL", KEY.is_null() | START.is_not_null()),
        ("not key is not null", ~KEY.is_not_null()),
        ("`meta.is it``s` = 1 and `null` is null", (attribute("meta.is it`s") == 1) & attribute("null").is_null()),
    ],
)
def test_a_filter_is_read_as_it_is_written(text: str, meant: Filter) -> None:
    assert parse_filter(text) == meant


@pytest.mark.parametrize(
    ("text", "position", "why"),
    [
        ("", 1, "the name of an attribute is expected, and it ends there"),
        ("key = = 'a'", 7, "a value is expected"),
        ("key 'a'", 5, "one of = != < <= > >= in between startswith is null is expected"),
        ("key = 'a' start = 1", 11, "and, or, or the end is expected"),
        ("(key = 'a'", 11, ") is expected, and it ends there"),
        ("key in ()", 9, "a value is expected"),
        ("key in 'a'", 8, "( is expected"),
        ("key = 'a", 7, "the text has no end marker"),
        ("`key = 1", 1, "the text has no end marker"),
        ("key is 1", 8, "null is expected, and there is 1"),
        ("key is not", 11, "null is expected, and it ends there"),
        ("key = 'a' && start = 1", 11, "'&' means nothing here"),
        ("key = a", 7, "a value is expected: 'text', a number, true or false, and there is a"),
        ("key startswith 7", 16, "startswith takes a text"),
        ("key startswith ''", 16, "startswith takes a text"),
        ("start between 1 or 2", 17, "and is expected"),
        ("and key = 'a'", 1, "the name of an attribute is expected"),
        ("not " * 40 + "key = 'a'", 129, "it nests deeper"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str, position: int, why: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_filter(text)
    assert f"at character {position}" in refused.value.what
    assert why in refused.value.why


def test_a_filter_too_long_to_be_typed_is_refused() -> None:
    with pytest.raises(InvalidInput, match="characters"):
        parse_filter("key = '" + "a" * 10_000 + "'")


@given(st.text(max_size=60))
def test_any_text_is_a_filter_or_refused_and_never_breaks(text: str) -> None:
    with suppress(InvalidInput):
        assert isinstance(parse_filter(text), Filter)


VALUES = st.one_of(st.text(max_size=8), st.integers(-(2**63) + 1, 2**63 - 1), st.booleans())
NAMES = st.sampled_from(["key", "bucket", "start", "x_1"])
FILTERS = st.recursive(
    st.one_of(
        st.builds(In, NAMES, st.lists(VALUES, min_size=1, max_size=3).map(tuple)),
        st.builds(lambda name, value: Range(name, low=value), NAMES, st.integers(0, 9)),
    ),
    lambda inner: st.one_of(st.builds(Not, inner), st.tuples(inner, inner).map(And), st.tuples(inner, inner).map(Or)),
    max_leaves=8,
)


def spelled(where: Filter) -> str:
    match where:
        case And(parts):
            return "(" + " and ".join(map(spelled, parts)) + ")"
        case Or(parts):
            return "(" + " or ".join(map(spelled, parts)) + ")"
        case Not(part):
            return f"not {spelled(part)}"
        case In(name, values):
            return f"{name} in ({', '.join(map(literal, values))})"
        case Range(name, low):
            return f"{name} >= {low}"
        case _:
            raise AssertionError(where)


def literal(value: object) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).lower() if isinstance(value, bool) else str(value)


@given(FILTERS)
def test_every_filter_that_is_spelled_out_is_read_back(where: Filter) -> None:
    assert parse_filter(spelled(where)) == where
