"""What a job may open, whoever wrote the event that asks for it: what those who run the job have named.

Anybody who can put a record on the queue can name any bucket in it. So a local folder is read only where it was named:
a place given to `penstock index`, the URL of a `--bucket`, or one that is allowed besides. Buckets of S3, Azure and
Google are read as far as the job's credentials go, unless a list of them is given; then only those. Links are followed
before a path is judged. The local places of earlier jobs on a store are remembered in it, as a list in JSON in the
object `indexing/places`, which only jobs write: a job that goes on with an earlier one's work may read what that could.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from penstock.errors import Corrupt, NotFound, PermissionDenied
from penstock.objects import ObjectStore, StoreSpec, StoreUrl, parse_url
from penstock.undecodable import UNDECODABLE

__all__ = ["Access", "bucket_url", "is_own_bucket", "remembered_places"]

_KEY: Final = "indexing/places"
_LOCAL: Final = ("file", "memory")
# What a store has at its top, by the paths that commands give it: other tenants' records, texts and vectors.
_OWN_FOLDERS: Final = frozenset({"indexing", "ingest", "notifications", "parsed", "telemetry", "vectors"})
_DECODER: Final = msgspec.json.Decoder(list[str])


def bucket_url(bucket: str) -> str:
    """The URL of a bucket as events name it: S3's by their bare names, all others by the URL they are opened with."""
    return bucket if "://" in bucket else f"s3://{bucket}"


def is_own_bucket(own: StoreSpec, url: StoreUrl) -> bool:
    """Whether `url` is in the bucket of a store. Events of Azure tell the account, which the URL of a store leaves out."""
    place = parse_url(own.url)
    if place.scheme != url.scheme:
        return False
    if place.scheme != "az":
        return place.place == url.place
    (account, container), (other_account, other) = _container(place.place), _container(url.place)
    account = account or own.options.get("account_name") or ""
    # Where one of them is not told, they may be the same.
    return container == other and (not account or not other_account or account == other_account)


class Access:
    """Places by their URLs: a folder or a prefix with all below it, or one file or object."""

    def __init__(self, places: Iterable[str], *, only: bool = False, own: StoreSpec | str | None = None) -> None:
        """With `only`, buckets of services are read where they are named; the store `own` is read nowhere."""
        spec = StoreSpec(own) if isinstance(own, str) else own
        named = [parse_url(place) for place in places]
        self._paths = frozenset(_real(place.place) for place in named if place.scheme == "file")
        self._others = [place for place in named if place.scheme != "file"]
        self._only = only
        self._own_spec = spec
        self._own = parse_url(spec.url) if spec else None
        self._own_path = _real(self._own.place) if self._own and self._own.scheme == "file" else None

    def check(self, url: str, key: str) -> None:
        """`PermissionDenied` unless the object at `key` of the store at `url` may be read."""
        store = parse_url(url)
        # Joined as text: a key that begins with a slash would else replace the folder.
        path = _real(f"{store.place}/{key}") if store.scheme == "file" else None
        if self._is_own(store, key, path):
            raise PermissionDenied(f"{key!r} of {store} may not be read", "it is in the store of the index itself")
        if not self._holds(store, key, path):
            raise PermissionDenied(
                f"{store} may not be read",
                "it was not named to the job",
                "name it to `penstock index` as a place or with --allow, and then `penstock documents retry`",
            )

    def _holds(self, store: StoreUrl, key: str, path: Path | None) -> bool:
        if path is not None:
            return path in self._paths or not self._paths.isdisjoint(path.parents)
        if store.scheme not in _LOCAL and not self._only:
            return True
        return any(_is_below(place, store, key) for place in self._others)

    def _is_own(self, store: StoreUrl, key: str, path: Path | None) -> bool:
        own = self._own
        if own is None or self._own_spec is None or own.scheme != store.scheme:
            return False
        if path is not None:
            return self._own_path in path.parents
        full = f"{store.prefix}/{key}" if store.prefix else key
        if not is_own_bucket(self._own_spec, store):
            return False
        # A bucket that is a store as a whole may hold documents as well, beside what the store has.
        return _is_under(own.prefix, full) if own.prefix else full.partition("/")[0] in _OWN_FOLDERS


async def remembered_places(spec: StoreSpec, named: Iterable[str]) -> tuple[str, ...]:
    """The local places that this job and those before it were given; new ones are written down."""
    store = await spec.open()
    try:
        before = await _read(store)
        local = {place for place in named if parse_url(place).scheme == "file"}
        if local - before:
            await store.put(_KEY, msgspec.json.encode(sorted(before | local)))
        return tuple(sorted(before | local))
    finally:
        await store.close()


async def _read(store: ObjectStore) -> set[str]:
    try:
        return set(_DECODER.decode((await store.get(_KEY)).data))
    except NotFound:
        return set()
    except UNDECODABLE as error:
        raise Corrupt("the places of a store's jobs cannot be read", str(error), f"remove the object {_KEY}") from error


def _is_below(place: StoreUrl, store: StoreUrl, key: str) -> bool:
    full = f"{store.prefix}/{key}" if store.prefix else key
    same = (place.scheme, place.place) == (store.scheme, store.place)
    return same and (not place.prefix or _is_under(place.prefix, full))


def _is_under(prefix: str, key: str) -> bool:
    return key == prefix or key.startswith(f"{prefix}/")


def _container(place: str) -> tuple[str, str]:
    """The account, as far as it is told, and the container."""
    account, _, container = place.rpartition(".")
    return account, container


def _real(path: str) -> Path:
    return Path(os.path.realpath(path))
