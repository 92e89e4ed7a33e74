"""What a micro-batch of events means for the documents they name, and which of them are read next. Pure.

Events are applied in their order; what they amount to is written before any document is read. Applying them again
changes nothing: an event that was accepted is a duplicate, and a version that was begun stays pending until it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from penstock.documents import (
    DocumentReport,
    DocumentStatus,
    Notification,
    UploadNotification,
    Verdict,
    doc_id_of,
    object_key,
)
from penstock.documents.versions import Decision, apply
from penstock.pipelines.registry import DocumentEntry, Pending

__all__ = ["Plan", "RoundLimits", "fair_order", "plan_events", "take_round"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """What is read between two writes: progress is lost by at most a round, and the driver holds one in memory."""

    documents_max: int = 256
    # Of one document; a cell is 1 MiB.
    cells_max: int = 8
    bytes_max: int = 32 << 20


@dataclass(slots=True)
class Plan:
    """What is to be written before reading. `entries` holds every entry that the events touched."""

    entries: dict[str, DocumentEntry] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    # (objectKey, version) pairs: hidden rows to drop, of versions given up and of those that begin.
    dropped: list[tuple[str, str]] = field(default_factory=list)
    deleted: int = 0
    unchanged: int = 0
    ignored: int = 0


def plan_events(known: Mapping[str, DocumentEntry], events: Iterable[Notification], fingerprint: str) -> Plan:
    """The plan for events of one collection, in their order; `known` are the entries of the objects they name."""
    plan = Plan()
    for event in events:
        key = object_key(event)
        entry = plan.entries.get(key) or known.get(key)
        decision = apply(entry.state if entry else None, event)
        if decision.accepted:
            plan.entries[key] = _accepted(plan, entry, event, decision, fingerprint)
            continue
        plan.ignored += 1
        if entry is not None:
            # Perhaps a replay of what was accepted and not finished.
            plan.entries[key] = _resumable(plan, entry, fingerprint)
    return plan


def fair_order(groups: Sequence[Sequence[T]]) -> list[T]:
    """One of each group in turn: a tenant with much work does not hold up one with little."""
    longest = max(map(len, groups), default=0)
    return [group[turn] for turn in range(longest) for group in groups if turn < len(group)]


def take_round(waiting: Sequence[DocumentEntry], limits: RoundLimits, cell_bytes: int) -> list[DocumentEntry]:
    """The first of `waiting` that fit into a round; one always does."""
    taken: list[DocumentEntry] = []
    total = 0
    for entry in waiting:
        assert entry.pending is not None
        total += min(entry.pending.upload.size_bytes, limits.cells_max * cell_bytes)
        if taken and (len(taken) >= limits.documents_max or total > limits.bytes_max):
            break
        taken.append(entry)
    return taken


def _accepted(
    plan: Plan, entry: DocumentEntry | None, event: Notification, decision: Decision, fingerprint: str
) -> DocumentEntry:
    key = object_key(event)
    assert decision.state is not None
    if entry is None:
        entry = DocumentEntry(object_key=key, bucket=event.bucket, key=event.key, state=decision.state)
    before, entry = entry.pending, msgspec.structs.replace(entry, state=decision.state, pending=None)
    if decision.verdict is Verdict.REMOVE:
        plan.removed.append(key)
        plan.deleted += 1
        report = DocumentReport(doc_id=decision.superseded or key, status=DocumentStatus.DELETED)
        return msgspec.structs.replace(entry, current=None, fingerprint=None, report=report, upload=None)
    assert isinstance(event, UploadNotification)
    return _wanted(plan, msgspec.structs.replace(entry, upload=event), before, event, fingerprint)


def _wanted(
    plan: Plan, entry: DocumentEntry, before: Pending | None, upload: UploadNotification, fingerprint: str
) -> DocumentEntry:
    """The entry of an object whose new version is `upload`; `before` is what was being built."""
    document = doc_id_of(upload)
    if before is not None and before.doc_id == document:
        return _resumable(plan, msgspec.structs.replace(entry, pending=before), fingerprint)
    if before is not None:
        plan.dropped.append((entry.object_key, before.version))
    if entry.current == document and entry.fingerprint == fingerprint and not upload.reread:
        plan.unchanged += 1
        return entry
    version = f"{document}:{entry.state.revision}"
    plan.dropped.append((entry.object_key, version))
    pending = Pending(upload=upload, doc_id=document, version=version, fingerprint=fingerprint)
    return msgspec.structs.replace(entry, pending=pending)


def _resumable(plan: Plan, entry: DocumentEntry, fingerprint: str) -> DocumentEntry:
    """Progress counts only for the chunking it was made with."""
    pending = entry.pending
    if pending is None or pending.fingerprint == fingerprint:
        return entry
    plan.dropped.append((entry.object_key, pending.version))
    anew = Pending(upload=pending.upload, doc_id=pending.doc_id, version=pending.version, fingerprint=fingerprint)
    return msgspec.structs.replace(entry, pending=anew)
