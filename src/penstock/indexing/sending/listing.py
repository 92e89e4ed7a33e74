"""What a listing of folders and buckets means for an index: which documents are new, changed, gone, or as they were.

Only what has changed becomes a notification. A document that was set aside stays so until it changes or somebody asks
for it (`penstock documents retry`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents import (
    DeleteNotification,
    DocumentStatus,
    Notification,
    ObjectState,
    UploadNotification,
    doc_id_of,
    last_seen_ns,
    observed,
)
from penstock.errors import PenstockError
from penstock.indexing.registry.entries import DocumentEntry
from penstock.indexing.sending.known import Known
from penstock.indexing.sending.places import Place
from penstock.indexing.stages.reading import Reading
from penstock.objects import ObjectMeta
from penstock.vector import CollectionName

__all__ = ["Listing", "compare", "deletion", "deletion_at", "upload_of"]


# Of an index; what would remove more is asked about first.
_REMOVED_SHARE_MAX: Final = 0.5
# Every bucket where its name says.
_BY_NAME: Final = Reading()


@dataclass(slots=True)
class Listing:
    """What there is to notify, and how many documents need it not."""

    events: list[Notification] = field(default_factory=list)
    # Documents that the index has, whether the places show them or not.
    known: int = 0
    unchanged: int = 0
    # Unchanged as well, and not searchable: they could not be read, and nothing about them is different now.
    set_aside: int = 0
    # Taken out of the index by a person, and as they were then.
    forgotten: int = 0
    # Being built already, by a run that did not come to its end.
    under_way: int = 0
    # The last look at an object that the index has taken, by bucket and key, for those that there are events of.
    taken_ns: dict[tuple[str, str], int] = field(default_factory=dict)
    # Why some places could not be looked at; nothing is said of what lies there.
    failures: list[PenstockError] = field(default_factory=list)

    @property
    def removals(self) -> int:
        return sum(isinstance(event, DeleteNotification) for event in self.events)

    @property
    def removes_much(self) -> bool:
        """Whether the look would remove most of the index: more likely a folder was not mounted, or emptied by accident.

        One document is everyday work, whatever share of a small index it is.
        """
        return self.removals > max(1, self.known * _REMOVED_SHARE_MAX)


def compare(
    name: CollectionName,
    found: Mapping[Place, Sequence[ObjectMeta]],
    known: Iterable[DocumentEntry],
    fingerprint: str,
    *,
    named: bool = True,
    url_of: Callable[[str], str] = _BY_NAME.url_of,
    clock: Clock = SYSTEM_CLOCK,
) -> Listing:
    """The objects of some places against what the index knows of them. Pure but for the time.

    A hidden object concerns the index only once it is there, because an event or its own name brought it in. One that
    was forgotten comes back when it is `named`, now and by itself: later looks at the same places name nothing anew. An
    object that is known under several names, one of which is enough, is removed under the others.
    """
    entries = list(known)
    comparison = _Comparison(name, Known(entries, url_of), fingerprint, clock.now_ms())
    asked = {comparison.known.root(place) for place in found} if named else set()
    for place, metas in found.items():
        comparison.add(place, metas, asked)
    listing = comparison.listing
    listing.known = sum(not entry.state.tombstone for entry in entries)
    listing.taken_ns = _taken({(entry.bucket, entry.key): entry for entry in entries}, listing.events)
    return listing


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
    """The object as seen now, ordered after everything in `state`. What was `told` of the same content is kept."""
    same = told if told and told.etag == meta.version else None
    return UploadNotification(
        etag=meta.version,
        size_bytes=meta.size,
        version_id=same.version_id if same else None,
        content_type=same.content_type if same else None,
        source_id=same.source_id if same else None,
        metadata=same.metadata if same else None,
        reread=reread,
        **_event(name, bucket, meta.key, state, now_ms),
    )


def deletion(
    name: CollectionName, entry: DocumentEntry, now_ms: int, *, forgotten: str | None = None
) -> DeleteNotification:
    """That an object is gone; or, with the etag that it has, that a person wants it `forgotten`."""
    return deletion_at(name, entry.bucket, entry.key, now_ms, entry.state, forgotten=forgotten)


def deletion_at(
    name: CollectionName,
    bucket: str,
    key: str,
    now_ms: int,
    state: ObjectState | None = None,
    *,
    forgotten: str | None = None,
) -> DeleteNotification:
    """The same of an object that the index may not have heard of yet."""
    return DeleteNotification(forgotten=forgotten, **_event(name, bucket, key, state, now_ms))


@dataclass(slots=True)
class _Comparison:
    """One look, place after place."""

    name: CollectionName
    known: Known
    fingerprint: str
    now_ms: int
    listing: Listing = field(default_factory=Listing)
    # The locations that were seen: places may lie in one another.
    _seen: set[str] = field(default_factory=set)

    def add(self, place: Place, metas: Sequence[ObjectMeta], asked: Container[str]) -> None:
        present: set[str] = set()
        for meta in metas:
            location = self.known.location(place.bucket, meta.key)
            present.add(location)
            if location not in self._seen:
                self._seen.add(location)
                self._object(place, meta, asked=location in asked)
        for location, entry in self.known.within(place):
            if location not in present and location not in self._seen:
                self.listing.events.append(deletion(self.name, entry, self.now_ms))
        self._seen |= {location for location, _ in self.known.within(place)} - present

    def _object(self, place: Place, meta: ObjectMeta, *, asked: bool) -> None:
        found = self.known.named(place.bucket, meta.key)
        alive = [entry for entry in found if not entry.state.tombstone]
        if _is_hidden(meta.key, place) and not alive and not asked:
            return
        if alive or (found and found[0].forgotten):
            self._known(found[0], replace(meta, key=found[0].key), asked=asked)
        else:
            gone = [entry for entry in found if (entry.bucket, entry.key) == (place.bucket, meta.key)]
            self._upload(place.bucket, meta, gone[0] if gone else None)
        self.listing.events += [deletion(self.name, entry, self.now_ms) for entry in alive[1:]]

    def _known(self, entry: DocumentEntry, meta: ObjectMeta, *, asked: bool) -> None:
        listing, upload = self.listing, entry.upload
        if entry.forgotten == meta.version and not asked:
            listing.forgotten += 1
        elif entry.forgotten == meta.version:
            self._upload(entry.bucket, meta, entry, reread=True)
        elif upload is None or upload.etag != meta.version:
            self._upload(entry.bucket, meta, entry)
        elif entry.pending is not None and entry.pending.fingerprint == self.fingerprint:
            listing.under_way += 1
        elif entry.current == doc_id_of(upload) and entry.fingerprint == self.fingerprint:
            listing.unchanged += 1
        elif _is_set_aside(entry):
            listing.set_aside += 1
        else:
            self._upload(entry.bucket, meta, entry)

    def _upload(self, bucket: str, meta: ObjectMeta, entry: DocumentEntry | None, *, reread: bool = False) -> None:
        state, told = (entry.state, entry.upload) if entry else (None, None)
        self.listing.events.append(
            upload_of(self.name, bucket, meta, self.now_ms, state=state, told=told, reread=reread)
        )


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


def _is_hidden(key: str, place: Place) -> bool:
    """Whether a part of its name below the place begins with a dot; what a person names is never hidden."""
    if key in (place.key, place.prefix):
        return False
    return any(segment.startswith(".") for segment in key.removeprefix(place.prefix).split("/"))
