"""The words above a chunk: its title and headings, and what its document is about. Pure.

A lead has two lines. The first is the section: the document's title, the headings that the chunk stands under, and
those inside it. The second tells what the document is about: its name, its title and its first words, the same for all
its chunks. The lead is stored before the text of its row, where a collection with `TextAnalysis.LEADS` looks for it,
and shown apart from it. Chunks come in the order of the text, and what is above the next one is kept with the
document's progress: a document that is read in many rounds, or again after a crash, gets the same leads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from penstock.documents import Chunk, Outline
from penstock.indexing.registry.entries import Pending
from penstock.vector import guess_language

__all__ = ["LEAD", "ChunkPlace", "LedChunk", "StoredText", "own_text", "with_leads", "without_lead"]

# The attribute of a row: how many characters of its text are its lead, and the break behind it.
LEAD: Final = "lead"
_BREAK: Final = "\n\n"
_SEPARATORS: Final = re.compile(r"[\s_\-.+]+")
# A passage of a table of contents is all headings: they need not all be said twice.
_SECTION_CHARACTERS_MAX: Final = 480


class StoredText(NamedTuple):
    """A row's text, and how many characters of it are its lead."""

    text: str
    lead: int


class ChunkPlace(NamedTuple):
    """Where in its document a chunk begins; what is not known is None."""

    title: str | None = None
    headings: str | None = None
    page: int | None = None
    language: str | None = None


class LedChunk(NamedTuple):
    """A chunk, the words above it, and where it stands."""

    chunk: Chunk
    lead: str
    place: ChunkPlace = ChunkPlace()

    @property
    def stored(self) -> StoredText:
        """The text to store for it. Without a lead it begins with the break: its own first paragraph is none."""
        return StoredText(f"{self.lead}{_BREAK}{self.chunk.text}", len(self.lead) + len(_BREAK))


def with_leads(
    pending: Pending, chunks: Sequence[Chunk], *, has_headings: bool, title: str | None = None
) -> tuple[list[LedChunk], Outline]:
    """The chunks of a round with their leads, and the outline behind the last one.

    `title` is what the file itself is called, for a text that has no heading to take one from. In a text as it was uploaded a line that begins with `#` may be anything; parsers write headings so.
    """
    outline, name = pending.outline, _name_of(pending.upload.key)
    if title and not outline.title and not any(Outline.headings_in(chunk.text) for chunk in chunks):
        outline = outline.titled(title)
    led: list[LedChunk] = []
    for chunk in chunks:
        core = _core(chunk)
        outline = outline.speaking(guess_language(core))
        behind = outline.past(core) if has_headings else outline.past_plain(core)
        # The first chunk may hold the title itself.
        above = outline if outline.title else outline.titled(behind.title)
        section = _section(above, Outline.headings_in(core) if has_headings else [])
        about = " ".join(part for part in dict.fromkeys((name, behind.title, behind.opening)) if part)
        lead = f"{section or name}\n{about}" if section or about else ""
        led.append(LedChunk(chunk, lead, _place(above.entering(core) if has_headings else above)))
        outline = behind
    return led, outline


def _place(outline: Outline) -> ChunkPlace:
    return ChunkPlace(outline.title or None, outline.headings or None, outline.page or None, outline.language)


def _section(above: Outline, inside: list[str]) -> str:
    """Where a chunk stands, and the headings inside it that are not above it."""
    known = {above.title, *(heading for _, heading in above.path)}
    section = " · ".join([*filter(None, [above.lead]), *(each for each in dict.fromkeys(inside) if each not in known)])
    return section[:_SECTION_CHARACTERS_MAX].rstrip()


def without_lead(text: str, lead: int | None) -> tuple[str, str]:
    """What a row stores together: the section and the chunk's own text. Rows of before may have no lead."""
    return (text[: lead - len(_BREAK)].partition("\n")[0], text[lead:]) if lead else ("", text)


def own_text(row: dict[str, Any]) -> str:
    """The chunk's own text in a row as the store has it, with its attributes."""
    return without_lead(row["text"], row["attributes"].get(LEAD))[1]


def _core(chunk: Chunk) -> str:
    """What a chunk has that the one before it did not: headings in the overlap have been met."""
    overlap, text = chunk.core_start - chunk.start, chunk.text
    return text if not overlap else text.encode("utf-8", "surrogatepass")[overlap:].decode("utf-8", "replace")


def _name_of(key: str) -> str:
    """The words of a file's name, for a document that has no title."""
    stem = key.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    return _SEPARATORS.sub(" ", stem).strip()
