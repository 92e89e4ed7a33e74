"""Matchers ask of a column of values what they ask of each."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.errors import InvalidInput
from penstock.timeseries import Matcher, MatchKind

VALUES = ["", "a", "A", "ab", "b", "a\nb", "a.b", "ü", "pod-12", "pod-1", "^a$", "a)", "|", "x" * 5000]
PATTERNS = [
    "",
    ".*",
    ".+",
    "a",
    "a|b",
    "a.b",
    "^a$",
    "(?i)a",
    "pod-1.?",
    r"\Qa.b",
    r"\Qa)\E",
    "ü|",
    "[^a]*",
    "x{1000}.*",
    "a$|b",
    r"\pL",
    "(a|b)?",
]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("kind", list(MatchKind))
def test_a_column_is_answered_as_its_values_are(pattern: str, kind: MatchKind) -> None:
    matcher = Matcher("label", kind, pattern)
    test = matcher.predicate()
    assert matcher.wanted(pa.array(VALUES)).tolist() == [test(value) for value in VALUES]


def test_a_pattern_that_is_none_is_refused_of_a_column_too() -> None:
    with pytest.raises(InvalidInput):
        Matcher("label", MatchKind.REGEX, "a)(").wanted(pa.array(VALUES))
