"""A hook of MkDocs: an entry of `nav` that is a folder (`rooms/*`) becomes the list of its pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    config["nav"] = _expanded(config["nav"], Path(config["docs_dir"]))
    return config


def _expanded(entries: list[Any], docs: Path) -> list[Any]:
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, str) and entry.endswith("/*"):
            found += [str(page.relative_to(docs)) for page in sorted((docs / entry[:-2]).glob("*.md"))]
        elif isinstance(entry, dict):
            found.append({name: _expanded(it, docs) if isinstance(it, list) else it for name, it in entry.items()})
        else:
            found.append(entry)
    return found
