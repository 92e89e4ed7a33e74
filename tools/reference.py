"""Writes docs/reference.md from the public lists and the first sentences of what they name.

`make reference` runs it; `tests/test_house.py` fails while the page and the code differ. A name without a docstring of
its own, a constant or an alias, keeps the sentence that stands in the page.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from pathlib import Path
from types import ModuleType

import penstock

PAGE = Path(__file__).parent.parent / "docs" / "reference.md"
OPENING = """# Public names
What each room offers; everything else may change without notice. `make reference` writes this page from the code.
"""


def page(known: dict[tuple[str, str], str]) -> str:
    """The whole page; `known` are sentences by room and name, for names that have none in the code."""
    rooms = sorted(module.name for module in pkgutil.iter_modules(penstock.__path__, "penstock."))
    modules = (importlib.import_module(room) for room in rooms)
    return "\n".join([OPENING, *(_room(module, known) for module in modules if hasattr(module, "__all__"))])


def sentences(text: str) -> dict[tuple[str, str], str]:
    """What a page says of each name."""
    found: dict[tuple[str, str], str] = {}
    for room, section in re.findall(r"^## `([\w.]+)`$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL):
        found |= {(room, name): line for name, line in re.findall(r"^- `(\w+)`: (.+)$", section, re.MULTILINE)}
    return found


def _room(module: ModuleType, known: dict[tuple[str, str], str]) -> str:
    lines = [f"## `{module.__name__}`", _flat(inspect.getdoc(module) or "").partition(". ")[0].rstrip(".") + ".", ""]
    for name in sorted(module.__all__, key=str.lower):
        sentence = _sentence(_value(module, name)) or known.get((module.__name__, name), "")
        lines.append(f"- `{name}`: {sentence}" if sentence else f"- `{name}`")
    return "\n".join([*lines, ""])


def _value(module: ModuleType, name: str) -> object:
    """What a room offers under a name; None for a name whose library is not installed here."""
    try:
        return getattr(module, name)
    except ModuleNotFoundError:
        return None


def _sentence(value: object) -> str:
    has_own = inspect.isfunction(value) or (inspect.isclass(value) and "__doc__" in vars(value))
    text = _flat((value.__doc__ if has_own else None) or "")
    # What dataclasses and named tuples write by themselves says nothing.
    if re.match(r"\w+\([\w, :'\[\]|=.]*\)", text):
        return ""
    return re.split(r"(?<=\.) |: ", text, maxsplit=1)[0]


def _flat(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    written = page(sentences(PAGE.read_text()))
    if "--check" in sys.argv:
        sys.exit(written != PAGE.read_text())
    PAGE.write_text(written)
