"""Passages to learn from: sections of HTML documentation, each with the title and heading it stands under.

`python -m tools.embedded_model.passages OUT.jsonl FOLDER …` reads every page below the folders (Debian's documentation
packages, unpacked) with the parser that indexing uses. A folder gives so many passages at most, so that no project's
words outweigh the others'.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random  # noqa: TID251 - seeded: the recipe gives the same passages each time
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from penstock.documents import Outline
from penstock.documents.parsers.formats import ParserLimits
from penstock.documents.parsers.web.markup import parse_html
from penstock.errors import PenstockError

_HEADING: Final = re.compile(r"^(#{1,6}) +(\S.*)$", re.MULTILINE)
_WORDS: Final = re.compile(r"[^\W\d_]{2,}")
# Indexes and change logs are lists of names.
_SKIPPED: Final = re.compile(r"genindex|py-modindex|_static|_modules|changelog|release[_-]?notes|whatsnew|/api/.*_all")
_OTHER_LANGUAGES: Final = re.compile(
    r"\.html\.(?!en$|gz$)|/(de|fr|es|it|ja|ko|ru|zh|pt|da|tr|nl|pl|id|el|cs|sv|nb|vi|ar|fa|hr|ro|uk|fi|hu|ca)([-_]\w+)?(/|-)"
)
_PAGES_MAX: Final = 1_500
_PASSAGES_MAX: Final = 3_000
_SECTION_WORDS_MIN: Final = 12
# Words of a passage, drawn anew for each: questions are short and chunks long, and the table must serve both.
_PASSAGE_WORDS: Final = (25, 40, 60, 90, 160)


class Passage(NamedTuple):
    source: str
    title: str
    heading: str
    text: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("folders", nargs="+", type=Path)
    asked = parser.parse_args()
    with asked.out.open("w", encoding="utf-8") as out:
        for folder in asked.folders:
            kept = passages_below(folder)
            print(f"{folder.name:32}{len(kept):8,}", file=sys.stderr, flush=True)
            out.writelines(json.dumps(passage._asdict(), ensure_ascii=False) + "\n" for passage in kept)


def passages_below(folder: Path) -> list[Passage]:
    chance = random.Random(folder.name)
    pages = sorted(path for path in folder.rglob("*.htm*") if path.is_file() and not path.is_symlink())
    pages = [path for path in pages if not _SKIPPED.search(str(path)) and not _OTHER_LANGUAGES.search(str(path))]
    chance.shuffle(pages)
    found = [passage for page in pages[:_PAGES_MAX] for passage in _read(page, folder.name, chance)]
    found = list(dict.fromkeys(found))
    chance.shuffle(found)
    return found[:_PASSAGES_MAX]


def _read(page: Path, source: str, chance: random.Random) -> Iterator[Passage]:
    try:
        parsed = parse_html(page.read_bytes(), ParserLimits())
    except (PenstockError, OSError):
        return
    text = parsed.text.decode("utf-8", "replace")
    starts = [*(found.start() for found in _HEADING.finditer(text)), len(text)]
    outline = Outline(parsed.title or "")
    for start, end in itertools.pairwise(starts):
        outline = outline.past(text[start:end])
        body = _HEADING.sub("", text[start:end]).split()
        if len(_WORDS.findall(" ".join(body))) >= _SECTION_WORDS_MIN:
            heading = outline.path[-1][1] if outline.path else ""
            yield Passage(source, outline.title, heading, " ".join(body[: chance.choice(_PASSAGE_WORDS)]))


if __name__ == "__main__":
    main()
