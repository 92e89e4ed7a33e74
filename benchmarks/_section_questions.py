"""Sections of documentation, each to be found by its heading: questions that nobody wrote.

Every project gives as many sections, drawn by a fixed seed. A section's text goes into a file of its own, without
its heading, without the title of its page and under a number for a name, so that only what it says can find it.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from penstock.documents import Outline
from penstock.documents.parsers.formats import ParserLimits
from penstock.documents.parsers.web.markup import parse_html
from penstock.errors import PenstockError

__all__ = ["Section", "draw_sections", "write_sections"]

_HEADING: Final = re.compile(r"^#{1,6} +\S.*$", re.MULTILINE)
_WORD: Final = re.compile(r"[^\W\d_]{2,}")
# A heading of one word ("Notes", "Description") asks for nothing, and a section of a few words says nothing.
_HEADING_WORDS_MIN: Final = 2
_BODY_WORDS_MIN: Final = 30


class Section(NamedTuple):
    heading: str
    body: str


def draw_sections(pages: Iterable[Path], count: int) -> list[Section]:
    """So many sections of a project; a heading that it uses twice is left out."""
    found = list(dict.fromkeys(section for page in pages for section in _sections(page)))
    uses = Counter(section.heading.lower() for section in found)
    unique = [section for section in found if uses[section.heading.lower()] == 1]
    random.Random(count).shuffle(unique)
    return unique[:count]


def write_sections(sections: Iterable[Section], folder: Path) -> list[tuple[str, list[str]]]:
    """A file a section below `folder`; answers each heading with the name of its file."""
    folder.mkdir(parents=True)
    asked = []
    for number, section in enumerate(sections):
        name = f"{number:04}.txt"
        (folder / name).write_text(section.body, encoding="utf-8")
        asked.append((section.heading, [name]))
    return asked


def _sections(page: Path) -> Iterator[Section]:
    try:
        text = parse_html(page.read_bytes(), ParserLimits()).text.decode("utf-8", "replace")
    except PenstockError:
        return
    starts = [*(found.start() for found in _HEADING.finditer(text)), len(text)]
    for start, end in itertools.pairwise(starts):
        heading = Outline().past(text[start:end]).title
        body = " ".join(_HEADING.sub("", text[start:end]).split())
        if len(_WORD.findall(heading)) >= _HEADING_WORDS_MIN and len(_WORD.findall(body)) >= _BODY_WORDS_MIN:
            yield Section(heading, body)
