"""How deep a page is nested and how many attributes its elements have, in one pass that only moves forward.

Both are measured before any parser sees the page, because a tree builder's work grows with their squares. Tags are
found as browsers find them: quoted values, comments and scripts hold none, a tag that never ends ends the page, and an
element is open until its own end tag or that of one around it.

Nearly all pages are tame: every tag ends, has few attributes, and has no `<` or `>` in a quoted value. One pattern tells
so about a whole page in a fraction of the time that a look at each tag takes, and then only the names are left to count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from penstock.errors import AtCapacity

__all__ = ["check_nesting", "tag_end"]

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
_RAW_NAMES: Final = (b"script", b"style", b"textarea", b"title", b"xmp", b"iframe", b"noembed", b"noframes")
_RAW: Final = {name: re.compile(rb"</" + name, re.IGNORECASE) for name in _RAW_NAMES}
_COMMENT_END: Final = re.compile(rb"--!?>")

# A tame tag: at most 48 quoted values with at most 8 names between two of them, which is less than `_ATTRIBUTES_MAX`.
# Every repetition is possessive: nothing is tried twice.
_BARE: Final = rb"(?:\s*+[^<>\"'\s/]{1,64}+){0,8}+\s*+"
_INSIDE: Final = _BARE + rb"(?:(?:\"[^\"<>]*+\"|'[^'<>]*+')" + _BARE + rb"){0,48}+/?+>"
_COMMENT: Final = rb"<!--(?!-?>)(?s:.*?)--!?>"
_RAW_ELEMENTS: Final = b"|".join(
    rb"<(?i:%b)(?=[\s/>])%b(?s:.*?)(?=</(?i:%b))" % (name, _INSIDE, name) for name in _RAW_NAMES
)
_TAME: Final = re.compile(
    rb"(?:[^<]++|<(?!(?i:%b)[\s/>])/?+[a-zA-Z]%b|%b|%b|<(?:\?|!(?!--))[^<>]*+>|<(?![a-zA-Z/!?]))*+"
    % (b"|".join(_RAW_NAMES), _INSIDE, _RAW_ELEMENTS, _COMMENT)
)
# The names of a tame page's tags in lower case, with a slash before those that end; empty for a comment. What is between
# the tags of a raw element is passed with its first.
_RAW_CONTENTS: Final = b"|".join(rb"(?<=<%b)%b(?s:.*?)(?=</%b)" % (name, _INSIDE, name) for name in _RAW_NAMES)
_TAME_NAME: Final = re.compile(rb"%b|<(/?[a-zA-Z][^\s/>]*+)(?:%b)?" % (_COMMENT, _RAW_CONTENTS))


def check_nesting(data: bytes, depth_max: int) -> None:
    """Refuse a page that is nested too deep, or has an element with too many attributes."""
    if not _TAME.fullmatch(data):
        _check_depth(_tags(data), len(data), depth_max)
    elif data.count(b"<") > depth_max:
        _check_depth(_tame_tags(data), len(data), depth_max)


def _tame_tags(data: bytes) -> Iterator[tuple[bool, bytes]]:
    return ((name.startswith(b"/"), name.lstrip(b"/")) for name in _TAME_NAME.findall(data.lower()) if name)


def _check_depth(tags: Iterable[tuple[bool, bytes]], size: int, depth_max: int) -> None:
    open_names: list[bytes] = []
    counts: Counter[bytes] = Counter()
    for closing, name in tags:
        if name in _SELF_ENDING:
            continue
        if not closing:
            open_names.append(name)
            counts[name] += 1
            if len(open_names) > depth_max:
                raise _too_deep(size, depth_max)
        elif counts[name]:
            # Whatever was left open inside ends with it.
            while (ended := open_names.pop()) != name:
                counts[ended] -= 1
            counts[name] -= 1


def _tags(data: bytes) -> Iterator[tuple[bool, bytes]]:
    place = 0
    while (found := _TAG.search(data, place)) is not None:
        if found.group(1):
            end = place = _comment_end(data, found.end())
        else:
            name = found.group(3).lower()
            yield bool(found.group(2)), name
            end = tag_end(data, found.end())
            place = end
            if name in _RAW and not found.group(2) and end >= 0:
                raw = _RAW[name].search(data, end)
                end = place = raw.start() if raw else -1
        if end < 0:
            return


def _comment_end(data: bytes, place: int) -> int:
    """Where a comment ends whose first two dashes end at `place`; they may be its last ones too."""
    for short in (b">", b"->"):
        if data.startswith(short, place):
            return place + len(short)
    found = _COMMENT_END.search(data, place)
    return found.end() if found else -1


def tag_end(data: bytes, place: int) -> int:
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
        "parsers crash on such pages",
        "raise the depth limit if the page really is that deep",
    )
