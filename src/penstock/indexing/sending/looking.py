"""Lists the objects of folders and buckets; what they mean for an index is for `listing`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.errors import InvalidInput, NotFound, PenstockError
from penstock.indexing.sending.places import Place
from penstock.indexing.sending.unreadable import UnreadableFolders
from penstock.indexing.stages.reading import Reading
from penstock.objects import ObjectMeta, ObjectStore, StoreSpec, parse_url

__all__ = ["Found", "list_places"]

# Requests to one bucket at once.
_HEADS_AT_ONCE: Final = 32


@dataclass(slots=True)
class Found:
    """The objects of places, and why others could not be listed."""

    objects: dict[Place, list[ObjectMeta]] = field(default_factory=dict)
    failures: list[PenstockError] = field(default_factory=list)


async def list_places(
    places: Iterable[Place], reading: Reading, own: str, unreadable: UnreadableFolders | None = None
) -> Found:
    """The objects of some places, also hidden ones, without those of the store `own`, which may lie in them.

    A bucket is opened once for all of its places: thousands of files may be named one by one. One that cannot be
    listed is told, and keeps nobody from looking at the others. Without `unreadable`, a folder that may not be looked
    into counts as one.
    """
    by_bucket: dict[str, list[Place]] = {}
    for place in dict.fromkeys(places):
        by_bucket.setdefault(place.bucket, []).append(place)
    found = Found()
    for bucket, named in by_bucket.items():
        try:
            spec = reading.spec_of(bucket)
            _check_outside(named, spec.url, own)
            found.objects |= await _in_bucket(unreadable.passing_over(spec) if unreadable else spec, named, own)
        except InvalidInput:
            raise
        except PenstockError as error:
            found.failures.append(error)
    return found


async def _in_bucket(spec: StoreSpec, places: Sequence[Place], own: str) -> dict[Place, list[ObjectMeta]]:
    store = await spec.open()
    try:
        found = await _heads(store, [place for place in places if place.key is not None])
        for place in places:
            if place.key is None:
                found[place] = await _listed(store, place, spec.url, own)
        return found
    finally:
        await store.close()


async def _heads(store: ObjectStore, places: Sequence[Place]) -> dict[Place, list[ObjectMeta]]:
    gate = asyncio.Semaphore(_HEADS_AT_ONCE)

    async def head(place: Place) -> tuple[Place, list[ObjectMeta]]:
        assert place.key is not None
        async with gate:
            return place, await _single(store, place.key)

    return dict(await asyncio.gather(*map(head, places)))


async def _listed(store: ObjectStore, place: Place, bucket_url: str, own: str) -> list[ObjectMeta]:
    pages = [page async for page in store.list(f"{place.prefix}/" if place.prefix else "")]
    listed = _without_own([meta for page in pages for meta in page], bucket_url, own)
    # A URL may name one object, whatever lies below a folder of the same name.
    named = await _single(store, place.prefix) if place.prefix else []
    return named + await _with_versions(store, listed)


async def _with_versions(store: ObjectStore, listed: Sequence[ObjectMeta]) -> list[ObjectMeta]:
    """Objects with their versions, which a listing of Google's does not tell; without those that are gone meanwhile."""
    gate = asyncio.Semaphore(_HEADS_AT_ONCE)

    async def told(meta: ObjectMeta) -> list[ObjectMeta]:
        async with gate:
            return await _single(store, meta.key)

    unknown = [meta.key for meta in listed if not meta.version]
    heads = dict(zip(unknown, await asyncio.gather(*(told(meta) for meta in listed if not meta.version)), strict=True))
    return [found for meta in listed for found in heads.get(meta.key, [meta])]


async def _single(store: ObjectStore, key: str) -> list[ObjectMeta]:
    """One object, or none when it is gone."""
    try:
        return [await store.head(key)]
    except NotFound:
        return []


def _check_outside(places: Iterable[Place], bucket_url: str, own: str) -> None:
    """Refuse the store and what lies in it: each run would find what the one before has written."""
    bucket, store = _real(bucket_url), _real(own)
    for place in places:
        named = "/".join(part for part in (bucket, place.key or place.prefix) if part)
        if named == store:
            why = "it is the store of the index itself"
        elif named.startswith(f"{store}/"):
            why = f"it lies inside the store of the index, {own}"
        else:
            continue
        raise InvalidInput(f"{named} cannot be indexed", why, "give another --store")


def _without_own(metas: list[ObjectMeta], bucket_url: str, own: str) -> list[ObjectMeta]:
    """Without what lies in the store, by whatever way it is named."""
    bucket, store = _real(bucket_url), _real(own)
    if not store.startswith(f"{bucket}/"):
        return metas
    inside = store.removeprefix(bucket).strip("/")
    return [meta for meta in metas if not meta.key.startswith(f"{inside}/")]


def _real(url: str) -> str:
    """A store's URL without links in its path: two names of one directory are one."""
    place = parse_url(url)
    return str(Path(place.place).resolve()) if place.scheme == "file" else url
