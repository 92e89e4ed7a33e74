"""Text in markup languages is read as it stands, with its headings as headings."""

from __future__ import annotations

import re
import time

import pytest

from penstock.documents.parsers import Format, sniff
from penstock.documents.parsers.plain.marked_up import parse_marked_up

RST = """\
======
Otters
======

.. note:: they swim

Habitat
-------
Rivers.

# no heading

===== =====
a     b
===== =====
1     2
===== =====

----

Food
~~~~
Fish::

    Not a heading
    -------------

Kin
---
Weasels.
"""
ASCIIDOC = (
    "= Otters\n:toc:\n\n== Habitat\n\n----\n== no heading\n----\n\n=== Food ===\nFish.\n\n====\nAn example.\n====\n"
)
ORG = "#+TITLE: Otters\n* Habitat\n** TODO Food :fish:\n#+begin_src sh\n* no heading\n# none\n#+end_src\n*bold*\n"
LATEX = "\\title{Otters}\n\\section*{Habitat of \\emph{otters}}\nRivers.\n\\subsection[short]{Food}\n% \\section{no}\nFish.\n"


def headings(source: str, name: str) -> list[str]:
    text = parse_marked_up(source.encode(), name).text.decode()
    return [line for line in text.splitlines() if re.match("#+ ", line)]


@pytest.mark.parametrize(
    ("source", "name", "found"),
    [
        (RST, "a.rst", ["# Otters", "## Habitat", "### Food", "## Kin"]),
        (RST.replace("\n", "\r\n"), "a.rst", ["# Otters", "## Habitat", "### Food", "## Kin"]),
        (ASCIIDOC, "a.adoc", ["# Otters", "## Habitat", "### Food"]),
        (ORG, "a.org", ["# Otters", "# Habitat", "## TODO Food :fish:"]),
        (LATEX, "a.tex", ["# Otters", "# Habitat of otters", "## Food"]),
    ],
)
def test_headings_are_found_with_their_levels(source: str, name: str, found: list[str]) -> None:
    assert headings(source, name) == found
    parsed = parse_marked_up(source.encode(), name)
    assert (parsed.format, parsed.title) == (Format.MARKED_UP, "Otters")
    assert sniff(source.encode(), name=name.upper()) is Format.MARKED_UP


@pytest.mark.parametrize(("source", "name"), [(RST, "a.rst"), (ASCIIDOC, "a.adoc"), (ORG, "a.org"), (LATEX, "a.tex")])
def test_no_word_is_lost(source: str, name: str) -> None:
    def words(text: str) -> list[str]:
        return "".join(letter if letter.isalnum() else " " for letter in text).split()

    kept = words(parse_marked_up(source.encode(), name).text.decode())
    commands = {"TITLE", "title", "section", "subsection", "emph", "short"}
    assert [word for word in words(source) if word not in commands] == [word for word in kept if word not in commands]


def test_wide_titles_need_a_line_as_wide_as_they_look() -> None:
    assert headings("水獺\n====\n\n一\n", "a.rst") == ["# 水獺"]
    assert headings("水獺水獺\n==\n\nwords\n", "a.rst") == []


@pytest.mark.parametrize(
    "line",
    [
        "=" * 500_000,
        "=\n" * 250_000,
        "\\section{" * 60_000,
        "* " * 250_000,
        "= a" + " " * 500_000 + "b",
        "a\n=\n" * 120_000,
    ],
)
@pytest.mark.parametrize("name", ["a.rst", "a.adoc", "a.org", "a.tex"])
def test_no_text_takes_more_than_one_pass(line: str, name: str) -> None:
    began = time.process_time()
    parse_marked_up(line.encode(), name)
    assert time.process_time() - began < 5
