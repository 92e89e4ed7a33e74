"""JSON and newline-delimited JSON: a line a value, `path: value`, a paragraph a record.

With `json_fields`, only those fields are read: `body`, `author.name`, `tags`. A path goes through lists; a field that a
record does not have is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from penstock.documents.parsers.encodings import declared_charset, decoded
from penstock.documents.parsers.formats import Format, ParsedDocument
from penstock.documents.parsers.headings import verbatim
from penstock.errors import AtCapacity, InvalidInput
from penstock.undecodable import UNDECODABLE

__all__ = ["parse_json", "parse_json_lines"]

_BROKEN_LINES_MAX: Final = 0.5
_DEPTH_MAX: Final = 200
_TITLES: Final = ("title", "name", "subject", "headline")


def parse_json(data: bytes, fields: Sequence[str] = (), content_type: str = "") -> ParsedDocument:
    read = decoded(data, declared_charset(content_type))
    try:
        value = msgspec.json.decode(read.text)
    except UNDECODABLE as error:
        raise InvalidInput("a JSON document cannot be read", str(error), "check it with a JSON linter") from error
    records = value if isinstance(value, list) else [value]
    text = "\n\n".join(filter(None, (_record(record, fields) for record in records)))
    title = _title(value)
    return ParsedDocument(verbatim(text).encode("utf-8", "replace"), Format.JSON, title, read.warnings, read.encoding)


def parse_json_lines(data: bytes, fields: Sequence[str] = (), content_type: str = "") -> ParsedDocument:
    """A paragraph a line. Lines that are no JSON cost a warning, unless they are most of them."""
    read = decoded(data, declared_charset(content_type))
    blocks, lines, broken = [], 0, []
    for number, line in enumerate(read.text.split("\n"), 1):
        if not line.strip():
            continue
        lines += 1
        try:
            blocks.append(_record(msgspec.json.decode(line), fields))
        except UNDECODABLE:
            broken.append(number)
    if lines and len(broken) > _BROKEN_LINES_MAX * lines:
        raise InvalidInput(
            f"{len(broken)} of {lines} lines are not JSON",
            f"the first is line {broken[0]}",
            "write one JSON value per line",
        )
    warnings = (f"{len(broken)} lines are not JSON, the first is line {broken[0]}",) if broken else ()
    text = "\n\n".join(filter(None, blocks))
    return ParsedDocument(
        verbatim(text).encode("utf-8", "replace"), Format.JSON_LINES, None, (*read.warnings, *warnings), read.encoding
    )


def _record(value: Any, fields: Sequence[str]) -> str:
    if not fields:
        return "\n".join(_lines("", value, _DEPTH_MAX))
    return "\n".join(
        line for path in fields for found in _at(value, path.split(".")) for line in _lines(path, found, _DEPTH_MAX)
    )


def _at(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """What lies at a path; every element of a list on the way."""
    if isinstance(value, list):
        for each in value:
            yield from _at(each, path)
    elif not path:
        yield value
    elif isinstance(value, dict) and path[0] in value:
        yield from _at(value[path[0]], path[1:])


def _lines(path: str, value: Any, depth: int) -> Iterator[str]:
    if depth == 0:
        raise AtCapacity(
            f"a JSON document is nested deeper than {_DEPTH_MAX} levels", "it looks like data, not text", "cut it"
        )
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _lines(f"{path}.{key}" if path else str(key), each, depth - 1)
    elif isinstance(value, list):
        if all(not isinstance(each, dict | list) for each in value):
            words = ", ".join(_scalar(each) for each in value if each is not None)
            if words:
                yield f"{path}: {words}" if path else words
            return
        for each in value:
            yield from _lines(path, each, depth - 1)
    elif value is not None and _scalar(value).strip():
        yield f"{path}: {_scalar(value)}" if path else _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _title(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    found = next((value[key] for key in _TITLES if isinstance(value.get(key), str) and value[key].strip()), None)
    return found.strip() if found else None
