"""JSON is read as lines of path and value, all of it or the chosen fields."""

from __future__ import annotations

import pytest

from penstock.documents.parsers.plain.json_text import parse_json, parse_json_lines
from penstock.errors import AtCapacity, InvalidInput

ARTICLE = b'{"title": "Otters", "author": {"name": "Ann"}, "tags": ["river", "mammal"], "views": 3, "gone": null}'


def test_every_value_stands_behind_its_path():
    parsed = parse_json(ARTICLE)
    assert parsed.text.decode() == "title: Otters\nauthor.name: Ann\ntags: river, mammal\nviews: 3"
    assert parsed.title == "Otters"


def test_chosen_fields_are_read_alone_also_inside_lists():
    data = b'[{"t": "a", "by": [{"n": "x"}, {"n": "y"}], "z": 1}, {"t": "b"}, {"z": 2}]'
    assert parse_json(data, ("t", "by.n")).text == b"t: a\nby.n: x\nby.n: y\n\nt: b"


def test_a_record_a_line_and_broken_lines_are_told():
    parsed = parse_json_lines(b'{"a": 1}\n\nnot json\n{"a": 2}\n')
    assert (parsed.text, parsed.warnings) == (b"a: 1\n\na: 2", ("1 lines are not JSON, the first is line 3",))
    with pytest.raises(InvalidInput, match="2 of 3 lines are not JSON"):
        parse_json_lines(b"{}\nx\ny\n")


@pytest.mark.parametrize("data", [b"", b"{", b'{"a": }', b"[" * 100_000, b'{"a":' * 2_000 + b"1" + b"}" * 2_000])
def test_what_is_no_json_or_too_deep_is_refused_by_name(data):
    with pytest.raises((InvalidInput, AtCapacity), match="JSON"):
        parse_json(data)


def test_scalars_and_nothing():
    assert parse_json(b'"only"').text == b"only"
    assert parse_json(b"[]").text == b""
    assert parse_json(b"true").text == b"true"
