"""The attributes of passages as a search shows and filters them. Pure.

Attributes that the job itself writes can be named in any filter: where no passage has a value, nothing matches. A name
that is nobody's is refused by the collection, which lists those that there are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Any, Final

import msgspec

from penstock.errors import InvalidInput
from penstock.indexing.rounds.leads import LEAD, without_lead
from penstock.indexing.rounds.own_metadata import METADATA
from penstock.vector import And, Filter, In, IsNull, Not, Or, Range

__all__ = ["PASSAGE_ATTRIBUTES", "hit_of", "require_attribute", "settled_filter", "without_marks"]

_PLACE: Final = ("bucket", "key", "seq", "start", "end")
_STRUCTURE: Final = ("title", "headings", "page", "language")
PASSAGE_ATTRIBUTES: Final = frozenset((*_PLACE, *_STRUCTURE, METADATA, "sourceId"))
# Marks of pages, and the break behind them.
_MARKS: Final = re.compile(r"\f\n*")


def without_marks(text: str) -> str:
    """A text as a person reads it: a page begins without a sign."""
    return _MARKS.sub("", text)


def hit_of(row: dict[str, Any]) -> dict[str, Any]:
    """A passage, where it stands and under which title and headings."""
    place = row["attributes"]
    section, text = without_lead(row["text"], place.get(LEAD))
    return {
        "score": row["score"],
        **{part: place[part] for part in _PLACE},
        "section": section,
        "text": without_marks(text),
        **{part: place.get(part) for part in _STRUCTURE},
        "metadata": msgspec.json.decode(place[METADATA]) if place.get(METADATA) else {},
    }


def settled_filter(where: Filter, known: Set[str]) -> Filter:
    """A filter for a collection with these attributes: those of the job that no row has yet are null everywhere."""
    match where:
        case And(parts):
            return And(tuple(settled_filter(part, known) for part in parts))
        case Or(parts):
            return Or(tuple(settled_filter(part, known) for part in parts))
        case Not(part):
            return Not(settled_filter(part, known))
        case IsNull(name) if _is_unused(name, known):
            return And(())
        case In(name) | Range(name) if _is_unused(name, known):
            return Or(())
    return where


def require_attribute(name: str, known: Mapping[str, Any]) -> bool:
    """Whether some row has the attribute; `InvalidInput` if it is nobody's."""
    if name not in known and name not in PASSAGE_ATTRIBUTES:
        listed = ", ".join(sorted({*known, *PASSAGE_ATTRIBUTES}))
        raise InvalidInput(f"there is no attribute {name[:80]!r}", f"the attributes are: {listed}", "name one of them")
    return name in known


def _is_unused(name: str, known: Set[str]) -> bool:
    return name in PASSAGE_ATTRIBUTES and name not in known
