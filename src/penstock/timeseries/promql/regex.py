"""Regular expressions in RE2's syntax, without backtracking: an expression cannot explode, only be refused.

Patterns of matchers and of `label_replace` are anchored at both ends, and a dot matches a newline, as in Prometheus.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput, Unsupported

__all__ = ["anchored", "substituted"]

# What a compiled program may take; larger ones are refused by RE2.
_MEMORY_BYTES_MAX = 8 << 20
_PATTERN_CHARACTERS_MAX = 10_000
# Of a pattern, in an error.
_SHOWN_CHARACTERS = 100
# Whatever else is of digits is a name, which no group has.
_GROUP_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
# Groups of one digit are all that a replacement in RE2 has.
_REWRITE_GROUP_MAX = 9
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@functools.lru_cache(maxsize=256)
def anchored(pattern: str) -> Any:
    """The compiled pattern, to be used with `fullmatch`."""
    if len(pattern) > _PATTERN_CHARACTERS_MAX:
        raise InvalidInput(
            f"regular expression of {len(pattern)} characters", f"at most {_PATTERN_CHARACTERS_MAX} are compiled"
        )
    try:
        import re2
    except ImportError:
        raise Unsupported(
            "regular expressions of PromQL need the package google-re2",
            "it is not installed",
            "install penstock with its extra `timeseries`",
        ) from None
    if "C" in _ESCAPED.findall(pattern):
        # A single byte, which RE2 knows and Go's expressions do not.
        raise InvalidInput(
            f"invalid regular expression {pattern[:_SHOWN_CHARACTERS]!r}", "invalid escape sequence: \\C"
        )
    options = re2.Options()
    options.dot_nl = True
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES_MAX
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidInput(f"invalid regular expression {pattern[:_SHOWN_CHARACTERS]!r}", _words(error)) from None


def _words(error: Exception) -> str:
    """RE2 tells what it found as bytes."""
    said = error.args[0] if error.args else b""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    return text[: 2 * _SHOWN_CHARACTERS]


def substituted(compiled: Any, template: str, values: list[str]) -> list[str | None]:
    """What a template makes of each value that the pattern matches as a whole; None for the others.

    A template has `$1`, `$name` and `${name}`; groups that do not exist become nothing, `$$` a dollar.
    """
    parts = _parts(template, compiled)
    fast = _arrow_forms(compiled.pattern, parts)
    if fast is None:
        return [None if (match := compiled.fullmatch(value)) is None else _filled(parts, match) for value in values]
    pattern, rewrite = fast
    texts = pa.array(values, pa.large_string())
    matches = pc.match_substring_regex(texts, pattern)
    replaced = pc.replace_substring_regex(texts, pattern, rewrite)
    found: list[str | None] = pc.if_else(matches, replaced, pa.scalar(None, pa.large_string())).to_pylist()
    return found


def _parts(template: str, compiled: Any) -> list[str | int]:
    """Texts, and the numbers of groups between them."""
    parts: list[str | int] = []
    at = 0
    while (dollar := template.find("$", at)) >= 0:
        parts.append(template[at:dollar])
        name, at = _reference(template, dollar + 1)
        parts.append("$" if name is None else _group_number(compiled, name))
    parts.append(template[at:])
    return parts


def _filled(parts: list[str | int], match: Any) -> str:
    return "".join([part if isinstance(part, str) else match.group(part) or "" for part in parts])


def _arrow_forms(pattern: str, parts: list[str | int]) -> tuple[str, str] | None:
    """The same for Arrow, whose RE2 does a whole column at once; None for what it has no words for."""
    # A quotation that nothing ends would swallow what is put around the pattern.
    groups = [part for part in parts if isinstance(part, int)]
    if "\\Q" in pattern or any(group > _REWRITE_GROUP_MAX for group in groups):
        return None
    rewrite = "".join(f"\\{part}" if isinstance(part, int) else part.replace("\\", "\\\\") for part in parts)
    return rf"\A(?s:{pattern})\z", rewrite


def _reference(template: str, at: int) -> tuple[str | None, int]:
    """The group that is named behind a dollar, and where the text goes on; None for a dollar by itself."""
    if template.startswith("$", at):
        return None, at + 1
    if template.startswith("{", at):
        end = template.find("}", at)
        name = template[at + 1 : end] if end > 0 else ""
        return (name, end + 1) if name and _is_word(name) else (None, at)
    end = at
    while end < len(template) and _is_word(template[end]):
        end += 1
    return (template[at:end], end) if end > at else (None, at)


def _is_word(text: str) -> bool:
    return all(character == "_" or character.isalpha() or character.isdecimal() for character in text)


def _group_number(compiled: Any, name: str) -> int | str:
    """The number of a group, or nothing if there is none."""
    number = int(name) if _GROUP_NUMBER.fullmatch(name) else compiled.groupindex.get(name, -1)
    return number if 0 <= number <= compiled.groups else ""
