"""Markdown keeps its words: those in HTML between its paragraphs, and those above it in front matter."""

from __future__ import annotations

import time

import pytest

from penstock.documents.parsers import Format, ParserLimits, sniff
from penstock.documents.parsers.web.markdown import parse_markdown
from penstock.errors import AtCapacity


def text(source: str) -> str:
    return parse_markdown(source.encode(), ParserLimits()).text.decode()


@pytest.mark.parametrize(
    "opening", ['<p align="center"><b>Otters</b></p>', "<h1>Otters</h1>", "<div>", "<!-- a --><p>"]
)
def test_markdown_that_opens_with_html_is_markdown(opening: str) -> None:
    page = f"{opening}\n\n## Install\n\n- one\n- two\n".encode()
    assert sniff(page, name="README.md") is Format.MARKDOWN
    assert sniff(page, content_type="text/markdown; charset=utf-8") is Format.MARKDOWN
    assert sniff(page, name="README") is Format.HTML


@pytest.mark.parametrize("opening", ["<!DOCTYPE html>\n<p>", "<html><body><p>", "<?xml version='1.0'?><html>"])
def test_a_whole_page_under_the_name_of_markdown_is_a_page(opening: str) -> None:
    assert sniff(f"{opening}words".encode(), name="page.md") is Format.HTML


def test_words_in_blocks_of_html_are_kept_and_their_markup_is_not() -> None:
    source = (
        '<p align="center"><b>Otter Toolkit</b></p>\n\n<details>\n<summary>Where they live</summary>\n\nIn *rivers*.\n\n'
        "</details>\n\n<table><tr><td>fish</td><td>crab</td></tr></table>\n\n<!-- a secret -->\n\n<script>run()</script>\n"
    )
    assert text(source) == "Otter Toolkit\n\nWhere they live\n\nIn rivers.\n\nfish | crab"


def test_a_heading_in_html_is_a_heading() -> None:
    parsed = parse_markdown(b"<h1 align=center>Otters</h1>\n\n## Food\n\nFish.\n", ParserLimits())
    assert (parsed.title, parsed.text.decode()) == ("Otters", "# Otters\n\n## Food\n\nFish.")


def test_a_break_between_words_does_not_join_them() -> None:
    assert text("one<br>two<br/>three\n\n|a|b|\n|-|-|\n|x<br>y|z|\n") == "one two three\n\na | b\nx y | z"


@pytest.mark.parametrize(
    ("front", "title"),
    [
        ('---\ntitle: "Sea otters: a guide"\ntags: [a, b]\n---\n', "Sea otters: a guide"),
        ("---\r\ntags: [a, b]\r\ntitle: 'Sea otters: a guide'\r\n---\r\n", "Sea otters: a guide"),
        ('+++\ntitle = "Sea otters: a guide"\ntags = ["a", "b"]\n+++\n', "Sea otters: a guide"),
        ("---\ntags: [a, b]\n...\n", "Food"),
    ],
)
def test_front_matter_gives_the_title_and_is_no_heading(front: str, title: str) -> None:
    parsed = parse_markdown(f"{front}\n## Food\n\nFish.\n".encode(), ParserLimits())
    assert parsed.title == title
    lines = parsed.text.decode().splitlines()
    assert [line for line in lines if line.startswith("#")] == (["# " + title] if title != "Food" else []) + ["## Food"]
    assert any("tags" in line for line in lines)
    assert "---" not in lines


def test_a_line_across_the_page_is_no_front_matter() -> None:
    assert text("---\n\nOtters swim.\n\n---\n\nThey dive.\n") == "Otters swim.\n\nThey dive."
    assert text("---\nOtters swim.\n") == "Otters swim."


def test_front_matter_without_an_end_costs_one_look() -> None:
    began = time.process_time()
    text("---\n" + "key: value\n" * 20_000)
    assert time.process_time() - began < 5


def test_html_nested_without_end_is_refused() -> None:
    with pytest.raises(AtCapacity):
        text("<div>" * 100_000)
