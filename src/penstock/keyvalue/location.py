"""Where a store is: a URL, read as `penstock.objects` reads it, and a path, put together.

Credentials never appear in a URL, so a place can be printed. Paths that could leave their directory
or that some service would read differently are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.errors import InvalidInput
from penstock.objects import parse_url

__all__ = ["Location", "locate"]


@dataclass(frozen=True, slots=True)
class Location:
    """One store: `place` is a bucket, a volume's name in memory, or a directory; `path` leads on from there."""

    scheme: str
    place: str
    path: str

    @property
    def folder(self) -> Path:
        """The store's own directory; only a `file` location has one."""
        return Path(self.place) / self.path

    def __str__(self) -> str:
        return f"{self.scheme}://{self.place.rstrip('/')}/{self.path}"


def locate(store_url: str, path: str) -> Location:
    """Refuse whatever could be understood in two ways."""
    url = parse_url(store_url)
    if not isinstance(path, str):
        raise InvalidInput(
            f"a {type(path).__name__} is not a store path", "it must be text", "use segments joined by slashes"
        )
    if url.scheme == "file":
        return Location("file", _directory(url.place), _checked(path, path))
    whole = f"{url.prefix}/{path}".removeprefix("/") if path else path
    return Location(url.scheme, url.place, _checked(whole, path))


def _directory(folder: str) -> str:
    if ".." in folder.split("/"):
        raise InvalidInput(
            f"store URL {f'file://{folder}'[:200]!r} cannot be used", "it has a '..'", "write the path without it"
        )
    return folder


def _checked(whole: str, path: str) -> str:
    for segment in whole.split("/"):
        why = _fault(segment)
        if why:
            raise InvalidInput(
                f"store path {path[:200]!r} cannot be used", why, "use segments joined by single slashes"
            )
    return whole


def _fault(segment: str) -> str:
    if segment == "":
        return "it is empty, or has an empty segment"
    if segment in (".", ".."):
        return f"the segment {segment!r} could leave its folder"
    if not segment.isprintable():
        return "it has a character that cannot be printed"
    return ""
