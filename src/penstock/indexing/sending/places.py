"""Where the objects of a path or a URL are that a person named.

A bucket is named here as its events name it, so that what a listing sees and what the bucket tells are one object: S3's
by their bare names, all others by the URL they are opened with. `--bucket NAME=URL` says where a name is to be found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.errors import InvalidInput, NotFound
from penstock.indexing.stages.access import bucket_url
from penstock.objects import StoreUrl, parse_url

__all__ = ["Place", "allowed_url", "are_exhaustive", "place_of", "url_of", "with_account"]

# What begins like a URL is meant as one: `s3:/bucket`, `file:folder`, `https:/…`.
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:/|(memory|file|s3|az|gs|https?)(:|//))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket, and the one key or the prefix in it that is meant; a prefix has no slash at its end."""

    bucket: str
    key: str | None = None
    prefix: str = ""

    @property
    def url(self) -> str:
        """What a job may read that is given this place; of one under another name, `--bucket` says where it is."""
        bucket = parse_url(bucket_url(self.bucket))
        if bucket.scheme == "file":
            return str(StoreUrl("file", f"{bucket.place}/{self.key}" if self.key else bucket.place))
        return str(StoreUrl(bucket.scheme, bucket.place, self.key or self.prefix))


def url_of(store: str) -> str:
    """A store's URL; a plain path is a directory here. A mistyped URL is refused: no folder of its name is made."""
    if "://" in store or _SCHEME.match(store):
        return str(parse_url(store))
    if not store.strip():
        raise InvalidInput("an empty path cannot be a store", "it names nothing", "write a folder, or a store's URL")
    path = Path(store)
    # Upwards from behind a link leads to where the system says, which only following links tells.
    return _folder_url(path.resolve() if ".." in path.parts else path.absolute())


def with_account(url: str, account: str | None) -> str:
    """A container under the name in its events, which includes the account."""
    place = parse_url(url)
    if place.scheme != "az" or account is None or "." in place.place:
        return url
    return str(StoreUrl("az", f"{account}.{place.place}", place.prefix))


def place_of(given: str, buckets: Mapping[str, str] | None = None, account: str | None = None) -> Place:
    """The bucket and the key or prefix of a path or a URL that a person named; `account` is that of Azure."""
    if not given.strip():
        # An empty path would mean this folder: more likely a variable was not set.
        raise InvalidInput("an empty path cannot be indexed", "it names nothing", "write . for this folder")
    if "://" in given and not given.startswith("file://"):
        return _named(_cloud(given, account), buckets or {}, account)
    path = Path(parse_url(given).place if "://" in given else given).resolve()
    if not path.exists():
        raise NotFound(f"there is no {given}", f"{path} does not exist", "name a file, a folder or a store's URL")
    found = Place(_folder_url(path)) if path.is_dir() else Place(_folder_url(path.parent), path.name)
    return _named(found, buckets or {}, account)


def are_exhaustive(allowed: Iterable[str]) -> bool:
    """Whether a list of what is allowed names a bucket of a service: then there are no others."""
    return any(parse_url(url).scheme != "file" for url in allowed)


def allowed_url(given: str) -> str:
    """The URL of a folder or a bucket that events may name, with links followed, as in places."""
    url = parse_url(url_of(given))
    return _folder_url(Path(url.place).resolve()) if url.scheme == "file" else str(url)


def _folder_url(path: Path) -> str:
    return str(StoreUrl("file", str(path)))


def _cloud(given: str, account: str | None) -> Place:
    url = parse_url(with_account(given, account))
    return Place(url.place if url.scheme == "s3" else f"{url.scheme}://{url.place}", prefix=url.prefix)


def _named(place: Place, buckets: Mapping[str, str], account: str | None) -> Place:
    """Under the name that events have for the very same bucket, if one was given."""
    for name, url in buckets.items():
        known = Place(url) if url.startswith("file://") else _cloud(url, account)
        if known.bucket == place.bucket and not known.prefix:
            return Place(name, place.key, place.prefix)
    return place
