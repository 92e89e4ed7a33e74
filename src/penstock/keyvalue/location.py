"""Where a store is: a URL and a path, checked and put together.

Credentials never appear in a URL, so a place can be printed. Paths that could leave their directory
or that some service would read differently are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.errors import InvalidInput

__all__ = ["Location", "locate"]

_SCHEMES: Final = ("memory", "file", "s3", "az", "gs")
_EXAMPLES: Final = "memory://name, file:///directory, s3://bucket/prefix, az://container/prefix, gs://bucket/prefix"


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
    if not isinstance(store_url, str):
        raise InvalidInput(f"store URL {store_url!r} cannot be used", "it is no text", f"write one of {_EXAMPLES}")
    if not isinstance(path, str):
        raise InvalidInput(f"store path {path!r} cannot be used", "it is no text", "use segments joined by slashes")
    if "://" not in store_url:
        raise _refusal(store_url, "it has no scheme")
    try:
        parts = urlsplit(store_url)
    except ValueError as error:
        raise _refusal(store_url, str(error)) from error
    if parts.scheme not in _SCHEMES:
        raise _refusal(store_url, f"the scheme {parts.scheme!r} is not known")
    if "@" in parts.netloc:
        raise _refusal(store_url.replace(parts.netloc, "..."), "it carries credentials", "give them as options")
    if parts.query or parts.fragment:
        raise _refusal(store_url, "it has a query or a fragment", "give settings as options")
    prefix = unquote(parts.path)
    if parts.scheme == "file":
        return Location("file", _directory(store_url, parts.netloc, prefix), _checked(path, path))
    if parts.scheme == "memory" and prefix.strip("/"):
        raise _refusal(store_url, "a memory store has a name and no prefix")
    if parts.scheme != "memory" and not parts.netloc:
        raise _refusal(store_url, "it names no " + ("container" if parts.scheme == "az" else "bucket"))
    whole = f"{prefix.strip('/')}/{path}".removeprefix("/") if path else path
    return Location(parts.scheme, parts.netloc, _checked(whole, path))


def _directory(store_url: str, host: str, folder: str) -> str:
    if host not in ("", "localhost") or not folder.startswith("/"):
        raise _refusal(store_url, "its path is not absolute", "write three slashes: file:///directory")
    if ".." in folder.split("/"):
        raise _refusal(store_url, "it has a '..'", "write the path without it")
    if "\0" in folder:
        raise _refusal(store_url, "no file can have such a name")
    return folder.rstrip("/") or "/"


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


def _refusal(store_url: str, why: str, remedy: str = "") -> InvalidInput:
    return InvalidInput(f"store URL {store_url[:200]!r} cannot be used", why, remedy or f"write one of {_EXAMPLES}")
