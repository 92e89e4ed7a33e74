"""Files of a folder that cannot become documents: links, devices, and names that no object store has.

A listing of the store does not show them; a person who indexes a folder is told.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from errno import EACCES
from pathlib import Path
from typing import NamedTuple

from penstock.errors import InvalidInput
from penstock.objects import check_key

__all__ = ["LeftOut", "files_left_out"]


class LeftOut(NamedTuple):
    """A file that cannot be indexed, and why."""

    path: str
    reason: str


def files_left_out(folder: Path, own: Path | None = None) -> list[LeftOut]:
    """The skipped files of a folder, sorted by name; hidden files and the store `own` do not count."""
    return sorted(_found(folder, "", own))


def _found(folder: Path, prefix: str, own: Path | None) -> Iterator[LeftOut]:
    try:
        entries = list(os.scandir(folder))
        # Names alone do not make documents.
        if not os.access(folder, os.X_OK, effective_ids=True):
            raise PermissionError(EACCES, os.strerror(EACCES))
    except OSError as error:
        yield LeftOut(prefix or str(folder), f"it cannot be listed: {error.strerror}")
        return
    for entry in entries:
        key = f"{prefix}{entry.name}"
        if entry.name.startswith(".") or (own is not None and Path(entry.path) == own):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _found(Path(entry.path), f"{key}/", own)
        elif reason := _reason(entry, key):
            yield LeftOut(key, reason)


def _reason(entry: os.DirEntry[str], key: str) -> str | None:
    if entry.is_symlink():
        return "it is a link"
    if not entry.is_file(follow_symlinks=False):
        return "it is no file"
    try:
        check_key(key)
    except InvalidInput as error:
        return error.why
    return None
