"""Words with signs or capitals inside are found whole and by their parts."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.vector.arrays import compute
from penstock.vector.format.identifiers import CANDIDATES, compounds, parts


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("camelCase", ["camel", "case"]),
        ("parseHTTPHeader()", ["parse", "http", "header"]),
        ("HTTPServer", ["http", "server"]),
        ("getElementById", ["get", "element", "by", "id"]),
        ("lower", []),
        ("Capital", []),
        ("SHOUTED", []),
        ("URLs", []),
        ("E0308", []),
        ("aBcDeFgHiJkLmNoPqRsT", []),
    ],
)
def test_a_word_with_capitals_inside_has_parts(token: str, words: list[str]) -> None:
    assert parts(token) == words


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("snake_case,", ["snakecase"]),
        ("(e-mail)", ["email"]),
        ("v3.11.2", ["3.11.2"]),
        ("10.0.3.1", ["10.0.3.1"]),
        ("CVE-2024-3094.", ["cve20243094"]),
        ("O’Brien's", ["obrien"]),
        ("user's", []),
        ("don't", ["dont"]),
        ("C++", ["c++"]),
        ("C#,", ["c#"]),
        (".NET", [".net"]),
        ("--dry-run", ["dryrun", "--dryrun"]),
        ("-n", ["-n"]),
        ("end.", []),
        ("word", []),
        ("---", []),
    ],
)
def test_what_signs_hold_together_is_one_word(token: str, words: list[str]) -> None:
    assert compounds(token) == words


@given(st.from_regex(re.compile(r"[A-Za-z0-9é_.'’+#-]{1,12}"), fullmatch=True))
def test_no_token_with_such_a_word_is_passed_over(token: str) -> None:
    """The quick look at a whole column finds whatever the look at one token finds."""
    import pyarrow as pa

    if parts(token) or compounds(token):
        assert compute.match_substring_regex(pa.array([token]), CANDIDATES).to_pylist() == [True]


@pytest.mark.parametrize(
    "token",
    ["a" * 100_000 + "!.b-c", "A" * 100_000 + "a", "a-" * 50_000, "-" * 100_000 + "a", ".a" * 50_000, "aB" * 50_000],
    ids=["run", "capitals", "chain", "dashes", "dots", "camel"],
)
def test_a_hostile_token_takes_no_longer_than_its_length(token: str) -> None:
    began = time.process_time()
    parts(token)
    compounds(token)
    assert time.process_time() - began < 2
