"""What a listing of folders and buckets means for an index: which documents are new, changed, gone, or as they were.

Only what has changed becomes a notification. A document that was set aside stays so until it changes or somebody asks
for it (`penstock documents retry`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.cli.places import Place
from penstock.cli.unreadable import UnreadableFolders
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents import (
    DeleteNotification,
    DocumentStatus,
    Notification,
    ObjectState,
    UploadNotification,
    doc_id_of,
)
from penstock.documents.sequencers import last_seen_ns
from penstock.documents.versions import observed
from penstock.errors import InvalidInput, NotFound
from penstock.objects import ObjectMeta, ObjectStore
from penstock.objects.url import parse_url
from penstock.pipelines.reading import Reading
from penstock.pipelines.registry import DocumentEntry
from penstock.vector import CollectionName

__all__ = ["Listing", "compare", "deletion", "list_places", "upload_of"]

# Requests to one bucket at once.
_HEADS_AT_ONCE: Final = 32


@dataclass(slots=True)
class Listing:
    """What there is to notify, and how many documents need it not."""

    events: list[Notification] = field(default_factory=list)
    unchanged: int = 0
    # Unchanged as well, and not searchable: they could not be read, and nothing about them is different now.
    set_aside: int = 0
    # Being built already, by a run that did not come to its end.
    under_way: int = 0
    # The last look at an object that the index has taken, by bucket and key, for those that there are events of.
    taken_ns: dict[tuple[str, str], int] = field(default_factory=dict)


def compare(
    name: CollectionName,
    found: Mapping[Place, Sequence[ObjectMeta]],
    known: Iterable[DocumentEntry],
    fingerprint: str,
    *,
    clock: Clock = SYSTEM_CLOCK,
) -> Listing:
    """The objects of some places against what the index knows of them. Pure but for the time."""
    listing, entries = Listing(), {(entry.bucket, entry.key): entry for entry in known}
    by_bucket: dict[str, list[DocumentEntry]] = {}
    for entry in entries.values():
        by_bucket.setdefault(entry.bucket, []).append(entry)
    now_ms = clock.now_ms()
    for place, metas in found.items():
        for meta in metas:
            _compare_one(listing, name, place.bucket, meta, entries.get((place.bucket, meta.key)), fingerprint, now_ms)
        present = {meta.key for meta in metas}
        # One key that is there, as many are named on a command line, has nothing else that could be gone.
        others = by_bucket.get(place.bucket, []) if place.key not in present else []
        listing.events += [
            deletion(name, entry, now_ms)
            for entry in others
            if place.holds(entry.bucket, entry.key) and entry.key not in present and not entry.state.tombstone
        ]
    listing.taken_ns = _taken(entries, listing.events)
    return listing


async def list_places(
    places: Iterable[Place], reading: Reading, own: str, unreadable: UnreadableFolders | None = None
) -> dict[Place, list[ObjectMeta]]:
    """The objects of some places, without hidden ones and without those of the store `own`, which may lie in them.

    A bucket is opened once for all of its places: thousands of files may be named one by one. Without `unreadable`, a
    folder that may not be looked into ends it.
    """
    wanted = dict.fromkeys(places)
    by_bucket: dict[str, list[Place]] = {}
    for place in wanted:
        by_bucket.setdefault(place.bucket, []).append(place)
    found: dict[Place, list[ObjectMeta]] = {}
    for bucket, named in by_bucket.items():
        spec = reading.spec_of(bucket)
        store = await (unreadable.passing_over(bucket, spec) if unreadable else spec).open()
        try:
            found |= await _heads(store, [place for place in named if place.key is not None])
            for place in named:
                if place.key is None:
                    found[place] = await _listed(store, place, spec.url, own)
        finally:
            await store.close()
    return {place: found[place] for place in wanted}


async def _heads(store: ObjectStore, places: Sequence[Place]) -> dict[Place, list[ObjectMeta]]:
    gate = asyncio.Semaphore(_HEADS_AT_ONCE)

    async def head(place: Place) -> tuple[Place, list[ObjectMeta]]:
        assert place.key is not None
        async with gate:
            return place, [await store.head(place.key)]

    return dict(await asyncio.gather(*map(head, places)))


async def _listed(store: ObjectStore, place: Place, bucket_url: str, own: str) -> list[ObjectMeta]:
    pages = [page async for page in store.list(f"{place.prefix}/" if place.prefix else "")]
    listed = [meta for page in pages for meta in page]
    if not listed and place.prefix:
        return await _single(store, place)
    kept = _without_own([meta for meta in listed if not _is_hidden(meta.key, place.prefix)], bucket_url, own)
    # A listing of Google's does not tell versions.
    return [meta if meta.version else await store.head(meta.key) for meta in kept]


def upload_of(
    name: CollectionName,
    bucket: str,
    meta: ObjectMeta,
    now_ms: int,
    *,
    state: ObjectState | None = None,
    told: UploadNotification | None = None,
    reread: bool = False,
) -> UploadNotification:
    """The object as it was seen now, behind all of `state`. What was `told` of the same content before is kept."""
    same = told if told and told.etag == meta.version else None
    return UploadNotification(
        etag=meta.version,
        size_bytes=meta.size,
        version_id=same.version_id if same else None,
        content_type=same.content_type if same else None,
        reread=reread,
        **_event(name, bucket, meta.key, state, now_ms),
    )


def deletion(name: CollectionName, entry: DocumentEntry, now_ms: int) -> DeleteNotification:
    return DeleteNotification(**_event(name, entry.bucket, entry.key, entry.state, now_ms))


def _compare_one(
    listing: Listing,
    name: CollectionName,
    bucket: str,
    meta: ObjectMeta,
    entry: DocumentEntry | None,
    fingerprint: str,
    now_ms: int,
) -> None:
    if entry is None:
        listing.events.append(upload_of(name, bucket, meta, now_ms))
    elif entry.upload is None or entry.upload.etag != meta.version:
        listing.events.append(upload_of(name, bucket, meta, now_ms, state=entry.state))
    elif entry.pending is not None and entry.pending.fingerprint == fingerprint:
        listing.under_way += 1
    elif entry.current == doc_id_of(entry.upload) and entry.fingerprint == fingerprint:
        listing.unchanged += 1
    elif _is_set_aside(entry):
        listing.set_aside += 1
    else:
        listing.events.append(upload_of(name, bucket, meta, now_ms, state=entry.state, told=entry.upload))


def _taken(
    entries: Mapping[tuple[str, str], DocumentEntry], events: Iterable[Notification]
) -> dict[tuple[str, str], int]:
    named = [(event.bucket, event.key) for event in events]
    looks = {
        name: last_seen_ns(entries[name].state.sequencer, entries[name].state.earlier)
        for name in named
        if name in entries
    }
    return {name: look_ns for name, look_ns in looks.items() if look_ns >= 0}


def _is_set_aside(entry: DocumentEntry) -> bool:
    report = entry.report
    if report is None or entry.upload is None or report.doc_id != doc_id_of(entry.upload):
        return False
    return report.status is DocumentStatus.QUARANTINED


def _event(name: CollectionName, bucket: str, key: str, state: ObjectState | None, now_ms: int) -> dict[str, Any]:
    at, sequencer = observed(state, now_ms)
    names = {"tenant_id": name.tenant, "index_id": name.index, "model": name.model, "bucket": bucket, "key": key}
    return {**names, "created_at": at, "sequencer": sequencer}


async def _single(store: ObjectStore, place: Place) -> list[ObjectMeta]:
    """A URL may name one object; a prefix without any is as empty as it looks."""
    try:
        return [await store.head(place.prefix)]
    except NotFound:
        return []


def _is_hidden(key: str, prefix: str) -> bool:
    return any(segment.startswith(".") for segment in key.removeprefix(prefix).split("/"))


def _without_own(metas: list[ObjectMeta], bucket_url: str, own: str) -> list[ObjectMeta]:
    """Without what lies in the store, by whatever way it is named."""
    bucket, store = _real(bucket_url), _real(own)
    if store == bucket:
        raise InvalidInput(f"{own} cannot be indexed", "it is the store of the index itself", "give another --store")
    if not store.startswith(f"{bucket}/"):
        return metas
    inside = store.removeprefix(bucket).strip("/")
    return [meta for meta in metas if not meta.key.startswith(f"{inside}/")]


def _real(url: str) -> str:
    """A store's URL without links in its path: two names of one directory are one."""
    place = parse_url(url)
    return str(Path(place.place).resolve()) if place.scheme == "file" else url
