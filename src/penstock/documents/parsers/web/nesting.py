"""How deep a page is nested and how many attributes its elements have, in one pass that only moves forward.

Both are measured before any parser sees the page, because a tree builder's work grows with their squares. Tags are
found as browsers find them: quoted values, comments and scripts hold none, a tag that never ends ends the page, and an
element is open until its own end tag or that of one around it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from penstock.errors import AtCapacity

__all__ = ["check_nesting"]

# Real elements have a few dozen; 100,000 keep a parser busy for a minute.
_ATTRIBUTES_MAX: Final = 1_000

_TAG: Final = re.compile(rb"<(?:(!--)|(/?)([a-zA-Z][^\s/>]*))")
# In a tag: where a quoted value begins, or where the tag ends.
_VALUE_OR_END: Final = re.compile(rb"=\s*([\"'])|>")
# What is left of an ordinary tag behind its name, in one step: names, with or without a value in double quotes. Nothing
# in it is tried twice.
_ORDINARY: Final = re.compile(rb"(?:\s++[^\s\"'<>/=]++(?:=\"[^\"]*+\")?)*+\s*+/?>")
# Elements that end by themselves: a page may open thousands of them and never close one.
_SELF_ENDING: Final = frozenset(
    b"area base br col embed hr img input link meta param source track wbr p li dt dd tr td th thead tbody tfoot "
    b"option optgroup rp rt colgroup".split()
)
_RAW: Final = {
    name: re.compile(rb"</" + name, re.IGNORECASE)
    for name in (b"script", b"style", b"textarea", b"title", b"xmp", b"iframe", b"noembed", b"noframes")
}


def check_nesting(data: bytes, depth_max: int) -> None:
    """Refuse a page that is nested too deep, or has an element with too many attributes."""
    open_names: list[bytes] = []
    counts: Counter[bytes] = Counter()
    for closing, name in _tags(data):
        if name in _SELF_ENDING:
            continue
        if not closing:
            open_names.append(name)
            counts[name] += 1
            if len(open_names) > depth_max:
                raise _too_deep(len(data), depth_max)
        elif counts[name]:
            # Whatever was left open inside ends with it.
            while (ended := open_names.pop()) != name:
                counts[ended] -= 1
            counts[name] -= 1


def _tags(data: bytes) -> Iterator[tuple[bool, bytes]]:
    place = 0
    while (found := _TAG.search(data, place)) is not None:
        if found.group(1):
            end = data.find(b"-->", found.end())
            place = end + 3
        else:
            name = found.group(3).lower()
            yield bool(found.group(2)), name
            end = _tag_end(data, found.end())
            place = end
            if name in _RAW and not found.group(2) and end >= 0:
                raw = _RAW[name].search(data, end)
                end = place = raw.start() if raw else -1
        if end < 0:
            return


def _tag_end(data: bytes, place: int) -> int:
    """Where a tag ends; negative when it does not."""
    ordinary = _ORDINARY.match(data, place)
    # An attribute has a blank and a letter at least: in so few bytes there are not too many.
    if ordinary is not None and ordinary.end() - place < 2 * _ATTRIBUTES_MAX:
        return ordinary.end()
    return _tag_end_of_any(data, place)


def _tag_end_of_any(data: bytes, place: int) -> int:
    attributes = 0
    while (found := _VALUE_OR_END.search(data, place)) is not None:
        attributes += len(data[place : found.start()].replace(b"/", b" ").split())
        if attributes > _ATTRIBUTES_MAX:
            raise AtCapacity(
                f"an element of a page has more than {_ATTRIBUTES_MAX} attributes",
                "parsers take minutes for such pages",
                "upload the page without them",
            )
        if not found.group(1):
            return found.end()
        closing = data.find(found.group(1), found.end())
        if closing < 0:
            return -1
        place = closing + 1
    return -1


def _too_deep(size: int, depth_max: int) -> AtCapacity:
    return AtCapacity(
        f"a page of {size} bytes is nested deeper than {depth_max} elements",
        "parsers break on such pages",
        "raise the depth limit if the page is meant to be so",
    )
