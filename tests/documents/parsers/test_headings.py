"""Headings of every format stand in the text as lines of their own, marked with their level."""

from __future__ import annotations

import io

import docx
import pytest

from penstock.documents.parsers.formats import ParserLimits
from penstock.documents.parsers.headings import heading, with_title
from penstock.documents.parsers.office.word import parse_docx
from penstock.documents.parsers.web.markdown import parse_markdown
from penstock.documents.parsers.web.markup import parse_html


def html(body: str, title: str = "A page") -> str:
    page = f"<!doctype html><html><head><title>{title}</title></head><body>{body}</body></html>"
    return parse_html(page.encode(), ParserLimits()).text.decode()


def test_headings_of_a_page_keep_their_levels() -> None:
    text = html("<h1>Top <em>one</em></h1><p>words</p><h3> Third </h3><div>more</div>")
    assert text == "# Top one\n\nwords\n\n### Third\n\nmore"


@pytest.mark.parametrize("empty", ["<h2></h2>", "<h2> </h2>", '<h2><a class="headerlink" href="#x">¶</a></h2>'])
def test_a_heading_without_words_is_none(empty: str) -> None:
    assert "##" not in html(f"<h1>Top</h1>{empty}<p>words</p>").replace("# Top", "")


def test_a_page_without_headings_is_under_its_title() -> None:
    assert html("<p>words</p>") == "# A page\n\nwords"
    assert html("<p>words</p>", title="") == "words"


def test_headings_of_markdown_keep_their_levels() -> None:
    text = parse_markdown(b"Title\n=====\n\n### A *b*\n\nwords\n\n```\n# code\n```\n", ParserLimits()).text.decode()
    assert text == "# Title\n\n### A b\n\nwords\n\n # code"


def test_a_comment_in_code_is_no_heading() -> None:
    assert html("<h1>Top</h1><pre>x = 1\n# comment\n</pre>") == "# Top\n\nx = 1\n # comment"


def test_headings_of_a_word_document_are_those_of_its_styles() -> None:
    made = docx.Document()
    made.add_heading("Whole", 0)
    made.add_heading("Part", 2)
    made.add_paragraph("words")
    data = io.BytesIO()
    made.save(data)
    assert parse_docx(data.getvalue(), ParserLimits()).text.decode() == "# Whole\n\n## Part\n\nwords"


def test_a_heading_is_one_line_of_at_most_six_signs() -> None:
    assert heading("two\nlines", 9) == "###### two lines"
    assert heading(" ", 1) == ""
    assert with_title("", "Title") == ""
