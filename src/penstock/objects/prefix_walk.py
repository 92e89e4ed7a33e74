"""How a listing by plain prefix, in byte order, is made from folders: pure decisions, no I/O.

A folder sorts as its name with a slash: `a-b` comes before `a/b` because `-` is below `/`, though `a`
comes before `a-b`. Whoever walks folders must therefore order each by the names with their slashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from penstock.errors import InvalidInput
from penstock.objects.port import RESERVED_FOLDER, check_key

__all__ = ["folder_of", "is_object_key", "may_hold", "walk"]


def folder_of(prefix: str) -> str | None:
    """The folder, as `a/b/` or an empty text, that holds every key with this prefix; None if no key can have it."""
    folder = prefix[: prefix.rfind("/") + 1]
    if folder and not is_object_key(folder[:-1]):
        return None
    return folder


def is_object_key(key: str) -> bool:
    try:
        check_key(key)
    except InvalidInput:
        return False
    return True


def may_hold(folder: str, prefix: str, offset: str) -> bool:
    """Whether some key under `folder` can start with `prefix` and sort after `offset`."""
    if not (folder.startswith(prefix) or prefix.startswith(folder)):
        return False
    # Every key in the folder starts with it, so all of them compare to the offset as the folder does.
    return folder > offset or offset.startswith(folder)


def walk(scan: Callable[[str], Iterable[tuple[str, bool]]], prefix: str, offset: str) -> Iterator[str]:
    """Keys in byte order; `scan` gives a folder's names, each with whether it is a folder itself."""
    folder = folder_of(prefix)
    if folder is not None:
        yield from _walk(scan, folder, prefix, offset)


def _walk(scan: Callable[[str], Iterable[tuple[str, bool]]], folder: str, prefix: str, offset: str) -> Iterator[str]:
    for name in sorted(f"{name}/" if is_folder else name for name, is_folder in scan(folder)):
        key = folder + name
        if name.endswith("/"):
            if key != f"{RESERVED_FOLDER}/" and may_hold(key, prefix, offset):
                yield from _walk(scan, key, prefix, offset)
        elif key.startswith(prefix) and key > offset and is_object_key(key):
            # A foreign file whose name is no key is not an object: it could not be read by any name.
            yield key
