"""A page is found and shown under what it calls itself, and not under whatever heading comes first."""

from __future__ import annotations

import pytest

from penstock.documents import Outline
from penstock.documents.parsers.formats import ParserLimits
from penstock.documents.parsers.web.markup import parse_html
from penstock.documents.parsers.web.page_titles import under_page_title


def title_of(title: str, *headings: str) -> str:
    body = "".join(f"<h2>{each}</h2><p>text</p>" for each in headings)
    page = f"<html><head><title>{title}</title></head><body>{body}</body></html>"
    return Outline().past(parse_html(page.encode(), ParserLimits()).text.decode()).title


@pytest.mark.parametrize(
    ("title", "headings", "expected"),
    [
        (
            "Geographic Feeds — Django 3.2 documentation",
            ("Django 3.2 documentation", "Geographic Feeds"),
            "Geographic Feeds",
        ),
        ("My blog | On titles", ("My blog", "On titles"), "On titles"),
        ("Temporary Files Used By SQLite", ("1. Introduction", "2. Kinds"), "Temporary Files Used By SQLite"),
        ("Uploading packages — Python 3.11", ("This page", "Navigation"), "Uploading packages — Python 3.11"),
    ],
)
def test_the_heading_that_a_page_names_is_its_title(title: str, headings: tuple[str, ...], expected: str) -> None:
    assert title_of(title, *headings) == expected


@pytest.mark.parametrize(
    ("title", "headings"),
    [
        ("tokenize — Tokenizer for source — Python 3.11", ("tokenize — Tokenizer for source", "Examples")),
        ("contextvars — Context Variables — Python", ("contextvars — Context Variables", "Context Variables")),
        ("mod_proxy_http - Apache HTTP Server Version 2.4", ("Apache Module mod_proxy_http", "Summary")),
        ("git-log(1)", ("git-log(1) Manual Page", "NAME")),
        ("Home", ("Welcome to the archive", "News")),
        ("Untitled Document", ("Welcome to the archive", "News")),
        ("", ("Welcome to the archive", "News")),
        ("x" * 200 + " and more words", ("Welcome to the archive", "News")),
        ("東京の天気 | サイト", ("東京の天気", "予報")),
    ],
)
def test_a_first_heading_that_is_the_title_stays_so(title: str, headings: tuple[str, ...]) -> None:
    assert title_of(title, *headings) == headings[0]


def test_the_only_heading_of_the_highest_level_is_the_title_of_a_page_that_says_something_else() -> None:
    assert under_page_title("# On titles\n\n## One\n\nwords", "Acme Corporation") == "# On titles\n\n## One\n\nwords"
    assert under_page_title("# 1. One\n\n# 2. Two", "On titles").startswith("# On titles\n")


def test_a_line_that_is_what_the_page_calls_itself_is_its_title() -> None:
    text = "Small. Fast.\n\nVACUUM\n\n# 1. Syntax\n\nwords\n\n# 2. Use"
    assert under_page_title(text, "VACUUM") == text.replace("\nVACUUM\n", "\n# VACUUM\n")
    assert under_page_title(text, "Vacuuming") == text


def test_no_text_is_lost_and_a_page_that_names_itself_is_left_as_it_is() -> None:
    text = "# Site\n\nmenu\n\n## Page\n\nwords"
    assert under_page_title(text, "Page - Site") == f"# Page\n\n{text}"
    assert under_page_title(text, "Site") == text
    assert under_page_title("", "Page") == ""
    assert under_page_title("words", "Page") == "# Page\n\nwords"


def test_a_title_of_nothing_but_separators_names_nothing() -> None:
    for title in (" | ", " | " * 50, "---", ": : :", "\n\t"):
        assert under_page_title("# Site\n\n# Page", title) == "# Site\n\n# Page"
