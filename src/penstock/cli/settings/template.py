"""A commented configuration with every setting of every room: what each means, and its default.

Comments come from the rooms' own classes, so that the file says what the code does.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from dataclasses import MISSING
from enum import Enum
from typing import Any

from penstock.cli.settings.sections import SECTIONS, class_of, fields_of, is_section

__all__ = ["commented_configuration", "comments_of"]

_OPENING = """\
# Configuration of Penstock. Every setting is shown with its default; remove the # before one to change it.
# A setting `key` of section [section] is overridden by the environment variable PENSTOCK_SECTION_KEY.
# `penstock check-config` validates this file, and the stores that it names.
# Most installations change [serve], [gateway] and the section of their cloud; the other defaults rarely need a change.
"""
# What is changed most stands first.
_FIRST = ("serve", "gateway", "s3", "azure", "google", "observability")


def commented_configuration() -> str:
    """The text of a configuration file in which nothing is set."""
    order = [*_FIRST, *(section for section in SECTIONS if section not in _FIRST)]
    sections = ["\n".join(_section(section, class_of(section))) for section in order]
    return "\n".join([_OPENING, *sections])


def comments_of(kind: type[Any]) -> dict[str, str]:
    """What stands above each field of a class and of those it is made from, or behind it as a text, in one line."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("penstock."):
            found |= {name: text for name, text in _own_comments(base).items() if text or name not in found}
    return found


def _own_comments(kind: type[Any]) -> dict[str, str]:
    source = textwrap.dedent(inspect.getsource(kind))
    lines = source.splitlines()
    found: dict[str, str] = {}
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    for number, node in enumerate(body.body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            following = body.body[number + 1] if number + 1 < len(body.body) else None
            found[node.target.id] = _above(lines, node.lineno - 1) or _docstring(following)
    return found


def _above(lines: list[str], line: int) -> str:
    """The comment that ends in the line above."""
    words: list[str] = []
    at = line - 1
    while at >= 0 and (text := lines[at].strip()).startswith("#"):
        words.insert(0, text.lstrip("# "))
        at -= 1
    return " ".join(words)


def _docstring(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""


def _section(path: str, kind: type[Any]) -> list[str]:
    summary = (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")
    lines = [f"# {line}" for line in textwrap.wrap(summary, 100)]
    lines.append(f"[{path}]")
    comments, defaults = comments_of(kind), _defaults(kind)
    inner: list[str] = []
    for name, hint in fields_of(kind).items():
        if is_section(hint):
            inner += ["", *_section(f"{path}.{name}", hint)]
            continue
        lines += [f"# {line}" for line in textwrap.wrap(comments.get(name, ""), 100)]
        lines.append(f"# {name} = {_toml(defaults.get(name))}")
    return [*lines, *inner, ""]


def _defaults(kind: type[Any]) -> dict[str, Any]:
    if hasattr(kind, "__dataclass_fields__"):
        return {
            name: one.default if one.default is not MISSING else one.default_factory()
            for name, one in kind.__dataclass_fields__.items()
            if one.default is not MISSING or one.default_factory is not MISSING
        }
    made = kind()
    return {name: getattr(made, name) for name in kind.__struct_fields__}


def _toml(value: Any) -> str:
    """A default as TOML writes it; what has none is shown as an empty text."""
    if value is None:
        return '""  # not set'
    if isinstance(value, Enum):
        return json.dumps(value.name.lower())
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, dict):
        return "{}" if not value else json.dumps(value)
    if isinstance(value, tuple | list | frozenset | set):
        return json.dumps([str(one) for one in value], ensure_ascii=False)
    return json.dumps(str(value), ensure_ascii=False)
