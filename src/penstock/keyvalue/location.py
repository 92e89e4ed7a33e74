"""Where a store is: a URL and a path made into one checked place, and the words SlateDB wants for it.

Credentials never appear in a URL, so a place can be printed. Paths that could leave their directory
or that some backend would read differently are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict
from urllib.parse import unquote, urlsplit

from penstock.errors import InvalidInput, Unsupported

__all__ = ["Access", "Location", "locate", "store_settings"]


class Access(TypedDict, total=False):
    """How to reach a bucket. What is left out comes from the usual environment of S3, Azure or Google."""

    endpoint: str
    region: str
    access_key_id: str
    secret_access_key: str
    session_token: str
    account_name: str
    account_key: str
    service_account: str
    path_style: bool
    allow_http: bool


@dataclass(frozen=True, slots=True)
class Location:
    """One store: `container` is a bucket, or a volume's name in memory; `folder` the root of a directory."""

    scheme: str
    container: str
    folder: Path
    path: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.container or self.folder}/{self.path}"


# Our option, and SlateDB's name for it.
_OPTIONS: Final[dict[str, dict[str, str]]] = {
    "memory": {},
    "file": {},
    "s3": {
        "endpoint": "endpoint",
        "region": "region",
        "access_key_id": "access_key_id",
        "secret_access_key": "secret_access_key",
        "session_token": "session_token",
        "path_style": "virtual_hosted_style_request",
        "allow_http": "allow_http",
    },
    "az": {
        "endpoint": "endpoint",
        "account_name": "account_name",
        "account_key": "account_key",
        "allow_http": "allow_http",
    },
    "gs": {"endpoint": "base_url", "service_account": "service_account", "allow_http": "allow_http"},
}
_PLACES: Final[dict[str, Callable[[Location], dict[str, str]]]] = {
    "memory": lambda _: {},
    "file": lambda location: {"local_path": str(location.folder)},
    "s3": lambda location: {"bucket": location.container},
    "az": lambda location: {"container_name": location.container},
    "gs": lambda location: {"bucket": location.container},
}
_URLS: Final = "use memory://name, file:///directory, s3://bucket/prefix, az://container/prefix or gs://bucket/prefix"


def locate(store_url: str, path: str) -> Location:
    """Check a URL and a path, and put them together."""
    parts = urlsplit(store_url)
    if parts.scheme not in _OPTIONS:
        raise Unsupported(f"the store URL {store_url!r}", f"no store is called {parts.scheme + '://'!r}", _URLS)
    if "@" in parts.netloc or parts.query or parts.fragment:
        # Not quoted: what is too much may be a password.
        raise InvalidInput(
            f"a {parts.scheme}:// store URL", "it holds more than a place", "give credentials as options"
        )
    prefix = unquote(parts.path)
    if parts.scheme == "file":
        return Location("file", "", _folder(store_url, parts.netloc, prefix), _checked(path, path))
    if not parts.netloc and parts.scheme != "memory":
        raise InvalidInput(f"the store URL {store_url!r}", "it names no bucket", _URLS)
    whole = "/".join([*filter(None, prefix.split("/")), path])
    return Location(parts.scheme, parts.netloc, Path(), _checked(whole, path))


def store_settings(location: Location, access: Access) -> dict[str, str]:
    """The entries from which SlateDB builds its object store, beyond those of the environment."""
    names = _OPTIONS[location.scheme]
    unknown = sorted(set(access) - set(names))
    if unknown:
        raise InvalidInput(
            f"the option {unknown[0]!r} of {location}", f"a {location.scheme}:// store has no such option"
        )
    settings = _PLACES[location.scheme](location)
    settings |= {names[option]: _word(option, value) for option, value in access.items() if value is not None}
    # An endpoint without TLS was asked for by name; without one, the environment decides.
    if access.get("endpoint", "").startswith("http://"):
        settings.setdefault("allow_http", "true")
    return settings


def _word(option: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value != (option == "path_style")).lower()
    return str(value)


def _folder(store_url: str, host: str, folder: str) -> Path:
    if host or not folder.startswith("/"):
        raise InvalidInput(f"the store URL {store_url!r}", "its directory is not absolute", "write file:///directory")
    if ".." in folder.split("/"):
        raise InvalidInput(f"the store URL {store_url!r}", "it has a '..'")
    return Path(folder)


def _checked(whole: str, path: str) -> str:
    for segment in whole.split("/"):
        why = _fault(segment)
        if why:
            raise InvalidInput(f"the store path {path!r}", why, "use segments joined by single slashes")
    return whole


def _fault(segment: str) -> str:
    if segment == "":
        return "it is empty, or has an empty segment"
    if segment in (".", ".."):
        return f"the segment {segment!r} could leave its folder"
    if not segment.isprintable():
        return "it has a character that cannot be printed"
    return ""
