"""What a micro-batch of events means for the documents they name, and the bounds of the work that follows. Pure.

Events are applied in their order; what they amount to is written before any document is read. Applying them again
changes nothing: an event that was accepted is a duplicate, and a version that was begun stays pending until it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from penstock.documents import (
    Decision,
    DeleteNotification,
    DocumentReport,
    DocumentStatus,
    Notification,
    UploadNotification,
    Verdict,
    decide,
    doc_id_of,
    is_sidecar,
    object_key,
    object_key_of,
    sidecar_subject,
)
from penstock.errors import InvalidInput
from penstock.indexing.registry.entries import DocumentEntry, Pending

__all__ = ["EventPlan", "RoundLimits", "plan_events", "plan_resumed"]

_FORGOTTEN: Final = "forgotten: it comes back when it changes, is named, or with `penstock documents retry`"


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """How much is read between two writes."""

    # Maximum documents of one round.
    documents_max: int = 2048
    # Maximum size of one document's part of a round, in cells of 1 MiB.
    cells_max: int = 4
    # Maximum bytes read in one round. A larger round takes less time for the same documents but more memory:
    # writing it takes some thirty times its size.
    bytes_max: int = 4 << 20
    # Rounds of a micro-batch before the next one is planned, while its events wait.
    rounds_per_batch: int = 2
    # Waiting documents above which nothing more is taken from the queue.
    backlog_documents_max: int = 10_000
    # Waiting bytes above which nothing more is taken from the queue.
    backlog_bytes_max: int = 16 << 30
    # Documents waiting for an unreachable bucket above which nothing more is taken from the queue. They do not
    # count in `backlog_documents_max`.
    held_documents_max: int = 100_000

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name}={getattr(self, name)} is not possible", "it must be at least 1")


@dataclass(slots=True)
class EventPlan:
    """What is to be written before reading. `entries` holds every entry that the events touched."""

    # The turn of the next document that begins to wait.
    turn: int = 0
    # When the events reached the queue.
    queued_ms: int = 0
    entries: dict[str, DocumentEntry] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    # (objectKey, version) pairs: hidden rows to drop, of versions given up and of those that begin.
    dropped: list[tuple[str, str]] = field(default_factory=list)
    deleted: int = 0
    unchanged: int = 0
    ignored: int = 0
    # Of the ignored ones, those that were accepted before.
    duplicates: int = 0
    # By the objectKeys of documents of which other things are said now, beside their content: the names said before.
    retold: dict[str, set[str]] = field(default_factory=dict)
    # Places among the events of those that could not be decided on, and why.
    refused: dict[int, str] = field(default_factory=dict)

    def extend(self, step: EventPlan) -> None:
        """Take in what one event came to."""
        self.turn = step.turn
        self.entries |= step.entries
        self.removed += step.removed
        self.dropped += step.dropped
        self.deleted += step.deleted
        self.unchanged += step.unchanged
        self.ignored += step.ignored
        self.duplicates += step.duplicates
        for key, said in step.retold.items():
            self.retell(key, said)

    def retell(self, key: str, said: Iterable[str]) -> None:
        self.retold.setdefault(key, set()).update(said)


def plan_events(
    known: Mapping[str, DocumentEntry],
    events: Iterable[Notification],
    fingerprint: str,
    turn: int = 0,
    queued_ms: int = 0,
) -> EventPlan:
    """The plan for events of one collection, in their order; `known` are the entries of the objects they name.

    Documents that begin to wait do so from `turn` on; a newer version takes the place of the one it supersedes. An event
    that cannot be decided on is refused, and changes nothing: everybody's events are planned together.
    """
    plan = EventPlan(turn, queued_ms)
    for place, event in enumerate(events):
        try:
            plan.extend(_step(plan, known, event, fingerprint))
        except Exception as error:  # noqa: BLE001 - nothing is asked here: whatever is raised, this event brought it about
            plan.refused[place] = f"it cannot be planned: {type(error).__name__}: {error}"
    return plan


def _step(plan: EventPlan, known: Mapping[str, DocumentEntry], event: Notification, fingerprint: str) -> EventPlan:
    """What one event means after those before it."""
    step = EventPlan(plan.turn, plan.queued_ms)
    key = object_key(event)
    entry = plan.entries.get(key) or known.get(key)
    decision = decide(entry.state if entry else None, event)
    if decision.accepted and not _is_forgotten(entry, event):
        step.entries[key] = _accepted(step, entry, event, decision, fingerprint)
        return step
    step.ignored, step.duplicates = 1, int(decision.verdict is Verdict.DUPLICATE)
    if entry is not None:
        # Perhaps a replay of what was accepted and not finished.
        step.entries[key] = _resumable(step, entry, fingerprint)
    return step


def plan_resumed(entries: Iterable[DocumentEntry], fingerprint: str) -> EventPlan:
    """The plan for what an earlier run left pending: only what was chunked by another rule begins anew."""
    plan = EventPlan()
    for entry in entries:
        resumed = _resumable(plan, entry, fingerprint)
        if resumed is not entry:
            plan.entries[entry.object_key] = resumed
    return plan


def _is_forgotten(entry: DocumentEntry | None, event: Notification) -> bool:
    """Whether a person has taken this very content out of the index, and nobody asks for it."""
    if entry is None or entry.forgotten is None or not isinstance(event, UploadNotification):
        return False
    return not event.reread and event.etag == entry.forgotten


def _accepted(
    plan: EventPlan, entry: DocumentEntry | None, event: Notification, decision: Decision, fingerprint: str
) -> DocumentEntry:
    key = object_key(event)
    assert decision.state is not None
    if entry is None:
        entry = DocumentEntry(object_key=key, bucket=event.bucket, key=event.key, state=decision.state)
    before, entry = entry.pending, msgspec.structs.replace(entry, state=decision.state, pending=None)
    if decision.verdict is Verdict.REMOVE:
        if is_sidecar(event.key):
            subject = object_key_of(event.tenant_id, event.bucket, sidecar_subject(event.key))
            plan.retell(subject, entry.metadata or ())
        plan.removed.append(key)
        plan.deleted += 1
        forgotten = event.forgotten if isinstance(event, DeleteNotification) else None
        report = DocumentReport(
            doc_id=decision.superseded or key,
            status=DocumentStatus.DELETED,
            reason=_FORGOTTEN if forgotten else None,
        )
        return msgspec.structs.replace(
            entry, current=None, fingerprint=None, report=report, upload=None, forgotten=forgotten, metadata=None
        )
    assert isinstance(event, UploadNotification)
    if event.metadata is None and entry.upload is not None and doc_id_of(entry.upload) == doc_id_of(event):
        # Whoever tells of the same version again and says nothing beside it takes nothing back.
        event = msgspec.structs.replace(event, metadata=entry.upload.metadata)
    entry = msgspec.structs.replace(entry, upload=event, forgotten=None)
    return _wanted(plan, entry, before, event, fingerprint)


def _wanted(
    plan: EventPlan, entry: DocumentEntry, before: Pending | None, upload: UploadNotification, fingerprint: str
) -> DocumentEntry:
    """The entry of an object whose new version is `upload`; `before` is what was being built."""
    document = doc_id_of(upload)
    # Without either, all versions of an object have one identity, and every event means that there is a new one.
    names_version = bool(upload.etag or upload.version_id)
    if before is not None and before.doc_id == document and names_version:
        if upload.metadata != before.upload.metadata:
            plan.retell(entry.object_key, before.upload.metadata or ())
            told = msgspec.structs.replace(before.upload, metadata=upload.metadata)
            before = msgspec.structs.replace(before, upload=told)
        return _resumable(plan, msgspec.structs.replace(entry, pending=before), fingerprint)
    if before is not None:
        plan.dropped.append((entry.object_key, before.version))
    if names_version and entry.current == document and entry.fingerprint == fingerprint and not upload.reread:
        plan.unchanged += 1
        if upload.metadata == entry.metadata:
            return entry
        plan.retell(entry.object_key, entry.metadata or ())
        return msgspec.structs.replace(entry, metadata=upload.metadata)
    version = f"{document}:{entry.state.revision}"
    plan.dropped.append((entry.object_key, version))
    turn = plan.turn if before is None else before.turn
    plan.turn += before is None
    pending = Pending(
        upload=upload,
        doc_id=document,
        version=version,
        fingerprint=fingerprint,
        turn=turn,
        queued_ms=plan.queued_ms,
        # Its bucket does not answer for a newer version either.
        wait=before.wait if before else None,
    )
    return msgspec.structs.replace(entry, pending=pending)


def _resumable(plan: EventPlan, entry: DocumentEntry, fingerprint: str) -> DocumentEntry:
    """Progress counts only for the chunking it was made with."""
    pending = entry.pending
    if pending is None or pending.fingerprint == fingerprint:
        return entry
    plan.dropped.append((entry.object_key, pending.version))
    return msgspec.structs.replace(entry, pending=pending.anew(fingerprint=fingerprint, turn=pending.turn))
