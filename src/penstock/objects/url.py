"""The URL of a store, taken apart and checked: which service, which bucket or directory, which prefix.

One module for every room that opens something by URL, so that one rule decides what may be repeated in an error:
people paste keys and signatures into URLs, and what cannot be told from one is not shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from penstock.errors import InvalidInput
from penstock.objects.port import check_key

__all__ = ["SCHEMES", "StoreUrl", "check_endpoint", "check_sendable", "parse_url"]

SCHEMES: Final = ("memory", "file", "s3", "az", "gs")
# What S3, Azure and GCS all accept, and a little more: the service has the last word.
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
# What a URL gives a meaning to, or its reader leaves out; all else stays readable.
_MARKS: Final = re.compile(r"[%?#\t\r\n]")
_LEFT_OUT: Final = re.compile(r"[\t\r\n]")
# A path as people type it instead of a URL.
_PATH: Final = re.compile(r"(?:file:)?[/.~][^@?#%]*|file:[^@?#%:]*")
# Known to hold no secret: no user, no query, no fragment, and a place that is a name.
_SHOWN: Final = re.compile(r"(?:memory|file|s3|az|gs)://[^:@?#%/]*(?:/[^@?#]*)?")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,15}):/")
_ENDPOINT: Final = re.compile(r"https?://[^/\s@?#]+(?:/[^\s@?#]*)?")
_HOST: Final = re.compile(r"(?:[\w.-]+://)?[\w.-]*(?::\d{1,5})?/?")
_EXAMPLES: Final = "memory://name, file:///directory, s3://bucket/prefix, az://container/prefix, gs://bucket/prefix"


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """`place` is the bucket, container, memory name or directory; `prefix` has no slash at either end."""

    scheme: str
    place: str
    prefix: str = ""

    def __str__(self) -> str:
        """As `parse_url` would read it: whoever holds a store's URL can open the store again."""
        path = f"{self.place}{'/' if self.prefix else ''}{self.prefix}"
        return f"{self.scheme}://{_MARKS.sub(lambda mark: quote(mark[0]), path)}"


def parse_url(url: str) -> StoreUrl:
    """Refuse whatever could be understood in two ways."""
    if not isinstance(url, str):
        raise InvalidInput(f"a {type(url).__name__} is not a store URL", "it must be text", f"write one of {_EXAMPLES}")
    if "://" not in url:
        raise _no_scheme(url)
    if _LEFT_OUT.search(url):
        # The standard library reads it without: that would be another place.
        raise _refusal(url, "it has a line break or a tab", "write it without, or as %0A, %0D or %09")
    try:
        parts = urlsplit(url)
    except ValueError:
        # The parser's own words repeat what it could not read.
        raise _refusal(url, "the part behind :// is malformed") from None
    if parts.scheme not in SCHEMES:
        known = f"the scheme {parts.scheme!r} is not known" if _SCHEME.match(url) else "its scheme is not known"
        raise _refusal(url, known)
    if "@" in parts.netloc or _credentials(parts.netloc, parts.path):
        raise _refusal(url, "it carries credentials", "give them as options")
    if parts.query or parts.fragment:
        raise _refusal(url, "it has a query or a fragment", "give settings as options")
    if parts.scheme == "file":
        return _file(url, parts.netloc, parts.path)
    if parts.scheme == "memory":
        return _memory(url, parts.netloc, parts.path)
    return _bucket(url, parts.scheme, parts.netloc, parts.path)


def _file(url: str, host: str, path: str) -> StoreUrl:
    if host not in ("", "localhost") or not path.startswith("/"):
        raise _refusal(url, "its path is not absolute", "write three slashes: file:///directory")
    directory = unquote(path).rstrip("/") or "/"
    if "\0" in directory or not _is_utf8(directory):
        raise _refusal(url, "no file can have such a name")
    return StoreUrl("file", directory)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _memory(url: str, name: str, path: str) -> StoreUrl:
    if path.strip("/"):
        raise _refusal(url, "a memory store has a name and no prefix")
    return StoreUrl("memory", name)


def _bucket(url: str, scheme: str, bucket: str, path: str) -> StoreUrl:
    if not bucket:
        raise _refusal(url, "it names no " + ("container" if scheme == "az" else "bucket"))
    if not _BUCKET.fullmatch(bucket):
        raise _refusal(url, "it gives no name for a bucket", "use letters, digits, dots and hyphens")
    prefix = unquote(path).strip("/")
    try:
        return StoreUrl(scheme, bucket, prefix and check_key(prefix))
    except InvalidInput as error:
        raise _refusal(url, f"its prefix is no key: {error.why}", error.remedy) from error


def _no_scheme(url: str) -> InvalidInput:
    """Most often it is a path: then what to write instead is known."""
    path = url.removeprefix("file:")
    if path.startswith("/") and not _MARKS.search(path):
        return _refusal(url, "it has no scheme: it is a path", f"write {StoreUrl('file', path)}")
    if path != url or path.startswith((".", "~")):
        return _refusal(url, "it has no scheme: it is a path", "write the full path as file:///directory")
    return _refusal(url, "it has no scheme")


def _credentials(netloc: str, path: str) -> bool:
    """A key and a secret with a slash in it end before an at sign in the path."""
    return ":" in netloc and "@" in path


def check_endpoint(endpoint: object) -> None:
    """Reject an invalid service address, without repeating what may be a password."""
    if isinstance(endpoint, str) and _ENDPOINT.fullmatch(endpoint):
        return
    shown = f"endpoint {endpoint!r}" if isinstance(endpoint, str) and _HOST.fullmatch(endpoint) else "the endpoint"
    why = "it must start with http:// or https://, name a host, and carry neither credentials nor a query"
    raise InvalidInput(f"{shown} cannot be used", why, "write http://host:port, and give credentials as options")


def check_sendable(options: Mapping[str, object]) -> None:
    """Reject an option that cannot be sent, such as a key with a trailing line break: the client panics."""
    for name, value in options.items():
        if not isinstance(value, str) or (value.isprintable() and _is_utf8(value)):
            continue
        # The text of a key file has lines.
        if not (value.lstrip().startswith("{") and _is_utf8(value)):
            why = "it has a line break or another character that no request can carry"
            raise InvalidInput(f"option {name!r} cannot be used", why, "remove it; it is often at the end")


def _refusal(url: str, why: str, remedy: str = "") -> InvalidInput:
    return InvalidInput(f"store URL {_shown(url)!r} cannot be used", why, remedy or f"write one of {_EXAMPLES}")


def _shown(url: str) -> str:
    if not url or _SHOWN.fullmatch(url) or _PATH.fullmatch(url):
        return url[:200]
    scheme = _SCHEME.match(url)
    return f"{scheme[1]}://..." if scheme else "..."
