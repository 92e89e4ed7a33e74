"""The words above a chunk: the title of its document and the headings that it stands under. Pure.

A lead is stored before the text of its row, so that a passage is found by what it is part of, and shown apart from it.
Chunks come in the order of the text, and what is above the next one is kept with the document's progress: a document
that is read in many rounds, or again after a crash, gets the same leads.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from penstock.documents.outline import Outline
from penstock.pipelines.registry import Pending

__all__ = ["LEAD", "StoredText", "give_leads", "own_text", "stored_text", "without_lead"]

# The attribute of a row: how many characters of its text are its lead, and the break behind it.
LEAD: Final = "lead"
_BREAK: Final = "\n\n"
_SEPARATORS: Final = re.compile(r"[\s_\-.+]+")


class StoredText(NamedTuple):
    """A row's text, and how many characters of it are its lead."""

    text: str
    lead: int


def give_leads(pending: Pending, chunks: list[dict[str, Any]], *, has_headings: bool) -> Outline:
    """Give each chunk of a round its lead; the outline behind the last one.

    In a text as it was uploaded a line that begins with `#` may be anything; parsers write headings so.
    """
    outline, name = pending.outline, _name_of(pending.upload.key)
    for row in chunks:
        row[LEAD] = outline.lead or name
        if has_headings:
            outline = outline.past(_core(row))
    return outline


def stored_text(row: dict[str, Any]) -> StoredText:
    """The text to store for a chunk."""
    lead: str = row.get(LEAD) or ""
    return StoredText(f"{lead}{_BREAK}{row['text']}", len(lead) + len(_BREAK)) if lead else StoredText(row["text"], 0)


def without_lead(text: str, lead: int | None) -> tuple[str, str]:
    """What `stored_text` put together: the lead and the chunk's own text. Rows of before have none."""
    return (text[: lead - len(_BREAK)], text[lead:]) if lead else ("", text)


def own_text(row: dict[str, Any]) -> str:
    """The chunk's own text in a row as the store has it, with its attributes."""
    return without_lead(row["text"], row["attributes"].get(LEAD))[1]


def _core(row: dict[str, Any]) -> str:
    """What a chunk has that the one before it did not: headings in the overlap have been met."""
    overlap = row["core_start"] - row["start"]
    text: str = row["text"]
    return text if not overlap else text.encode("utf-8", "surrogatepass")[overlap:].decode("utf-8", "replace")


def _name_of(key: str) -> str:
    """The words of a file's name, for a document that has no title."""
    stem = key.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    return _SEPARATORS.sub(" ", stem).strip()
