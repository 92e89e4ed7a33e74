"""The URL of a store, taken apart and checked: which service, which bucket or directory, which prefix."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from penstock.errors import InvalidInput
from penstock.objects.port import check_key

__all__ = ["SCHEMES", "StoreUrl", "parse_url"]

SCHEMES: Final = ("memory", "file", "s3", "az", "gs")
# What S3, Azure and GCS all accept, and a little more: the service has the last word.
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
# What a URL gives a meaning to; all else stays readable.
_MARKS: Final = re.compile(r"[%?#]")
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
        raise InvalidInput(f"store URL {url!r} cannot be used", "it is no text", f"write one of {_EXAMPLES}")
    if "://" not in url:
        raise _no_scheme(url)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise _refusal(url, str(error)) from error
    if parts.scheme not in SCHEMES:
        raise _refusal(url, f"the scheme {parts.scheme!r} is not known")
    if "@" in parts.netloc:
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
        raise _refusal(url, f"{bucket!r} is no name for a bucket", "use letters, digits, dots and hyphens")
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


def _refusal(url: str, why: str, remedy: str = "") -> InvalidInput:
    # What stands before an at sign or behind a question mark may be a password or a signature.
    shown = re.sub(r"://[^/]*@", "://...@", re.sub(r"[?#].*", "?...", url, flags=re.DOTALL))
    return InvalidInput(f"store URL {shown[:200]!r} cannot be used", why, remedy or f"write one of {_EXAMPLES}")
