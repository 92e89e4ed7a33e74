"""Text that a page declares in shadow roots is shown to readers, and so it is read."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from penstock.documents.parsers.formats import ParserLimits
from penstock.documents.parsers.web.markup import parse_html
from penstock.documents.parsers.web.shadow_roots import open_shadow_roots
from penstock.errors import AtCapacity


def read(body: str) -> list[str]:
    return parse_html(f"<html><body>{body}</body></html>".encode(), ParserLimits()).text.decode().split()


def test_text_of_a_declared_shadow_root_stands_where_it_is_shown() -> None:
    page = "<p>before</p><my-card>a<template shadowrootmode='open'><p>inside</p><slot></slot></template>b</my-card>"
    assert read(page) == ["before", "a", "inside", "b"]


def test_shadow_roots_in_shadow_roots_are_read_and_other_templates_are_not() -> None:
    inner = "<x-b><TEMPLATE ShadowRootMode=closed>deep</TEMPLATE></x-b><template>never</template>"
    assert read(f"<x-a><template id='t' shadowrootmode=\"open\">outer {inner}</template></x-a> end") == [
        "outer",
        "deep",
        "end",
    ]


@pytest.mark.parametrize(
    "page",
    [
        "<template>shadowrootmode=open</template>",
        "<!-- <template shadowrootmode=open>no</template> -->",
        "<script>'<template shadowrootmode=open>no</template>'</SCRIPT>",
        "<template data-shadowrootmode=open>no</template>",
    ],
)
def test_what_only_mentions_a_shadow_root_is_left_alone(page: str) -> None:
    assert open_shadow_roots(page.encode()) == page.encode()
    assert read(f"<p>shown</p>{page}") == ["shown"]


@pytest.mark.parametrize("piece", ["<!--", "<script ", "<template ", "<template shadowrootmode=x ", "</template>"])
def test_a_hostile_page_takes_no_longer_than_its_length(piece: str) -> None:
    page = b"shadowrootmode" + piece.encode() * 50_000
    began = time.process_time()
    with suppress(AtCapacity):  # for its attributes
        open_shadow_roots(page)
    assert time.process_time() - began < 2
