"""Which version of an object is current: one small state machine an object, fed with its events in any order.

The state holds the order of the last event accepted, the current document and whether the object is gone. An event is
accepted only when it is newer; the same event again is a duplicate, an older one is stale. A tombstone keeps its order,
so that a create that was overtaken by its delete stays dropped. A, B, A on a bucket without versions ends on A: the
documents of both As are one, and only their order tells them apart. A delete of one version buries that version alone:
it changes nothing unless the version is current, and then it holds back no other one, however late its create comes.
Events of a bucket and our own looks at it (`observed`) meet here: each keeps its own order, as
`penstock.documents.sequencers` has it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec

from penstock.documents.contracts import DeleteNotification, Notification, UploadNotification
from penstock.documents.identity import doc_id_of
from penstock.documents.sequencers import implied, is_newer, last_seen_ns, remembered, same_event, seen

__all__ = ["Decision", "ObjectState", "Observation", "Verdict", "decide", "observed"]


class ObjectState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of one objectKey; serialisable, and kept while events of the object may still arrive."""

    at: datetime
    sequencer: str | None = None
    doc_id: str | None = None
    version_id: str | None = None
    tombstone: bool = False
    # Counts accepted events: two stays of the same document on one object are two revisions.
    revision: int = 1
    # The last sequencers of other families than that of `sequencer`.
    earlier: tuple[str, ...] = ()


class Verdict(StrEnum):
    """What an event asks for."""

    INDEX = "index"  # a new current version: read, chunk and embed it
    REMOVE = "remove"  # the object is gone: take its chunks away
    DUPLICATE = "duplicate"  # the event that made the current state, again
    STALE = "stale"  # something newer was accepted before
    ELSEWHERE = "elsewhere"  # a version that is not current was removed


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What an event means. `superseded` is the document whose chunks go once the new ones are searchable."""

    verdict: Verdict
    state: ObjectState | None
    superseded: str | None = None

    @property
    def accepted(self) -> bool:
        return self.verdict in (Verdict.INDEX, Verdict.REMOVE)


class Observation(NamedTuple):
    """When something was seen or done by us, and its order."""

    at: datetime
    sequencer: str


def observed(state: ObjectState | None, now_ms: int) -> Observation:
    """The order of what we see or do now: after all that was accepted, whatever the clocks say."""
    now, now_ns = datetime.fromtimestamp(now_ms / 1000, UTC), now_ms * 1_000_000
    if state is None:
        return Observation(now, seen(now_ns))
    last_ns = last_seen_ns(state.sequencer, state.earlier)
    return Observation(max(now, state.at), seen(max(now_ns, last_ns + 1)))


def decide(state: ObjectState | None, event: Notification) -> Decision:
    """The decision on one event of an object in `state`; None is an unknown object."""
    if state is not None:
        refused = _refusal(state, event)
        if refused:
            return Decision(verdict=refused, state=state)
    if isinstance(event, DeleteNotification):
        return _removed(state, event)
    return _indexed(state, event)


def _refusal(state: ObjectState, event: Notification) -> Verdict | None:
    if is_newer(event.sequencer, event.created_at, state.sequencer, state.at, state.earlier):
        return None
    same = same_event(event.sequencer, event.created_at, state.sequencer, state.at)
    if same and _same_effect(state, event):
        return Verdict.DUPLICATE
    # Two writes in one instant of a store without sequencers: nothing tells their order but that of their events. To
    # take the older one costs a conditional read, to drop the newer one loses it.
    is_tie = same and event.sequencer is None and not state.tombstone
    return None if is_tie else Verdict.STALE


def _same_effect(state: ObjectState, event: Notification) -> bool:
    if isinstance(event, DeleteNotification):
        return state.tombstone
    return state.doc_id == doc_id_of(event)


def _indexed(state: ObjectState | None, upload: UploadNotification) -> Decision:
    document = doc_id_of(upload)
    before = state.doc_id if state else None
    after = ObjectState(
        at=upload.created_at,
        sequencer=upload.sequencer,
        doc_id=document,
        version_id=upload.version_id,
        revision=state.revision + 1 if state else 1,
        earlier=_earlier(state, upload),
    )
    return Decision(verdict=Verdict.INDEX, state=after, superseded=before if before != document else None)


def _removed(state: ObjectState | None, delete: DeleteNotification) -> Decision:
    # Of a version never heard of nothing is known: a tombstone here could bury the version that is current.
    if delete.version_id and (state is None or delete.version_id != state.version_id):
        return Decision(verdict=Verdict.ELSEWHERE, state=state)
    if state is not None and delete.version_id:
        # The order stays that of the create: a version after it may have been made before this delete, and come later.
        buried = msgspec.structs.replace(
            state, doc_id=None, version_id=None, tombstone=True, revision=state.revision + 1
        )
        return Decision(verdict=Verdict.REMOVE, state=buried, superseded=state.doc_id)
    after = ObjectState(
        at=delete.created_at,
        sequencer=delete.sequencer,
        tombstone=True,
        revision=state.revision + 1 if state else 1,
        earlier=_earlier(state, delete),
    )
    return Decision(verdict=Verdict.REMOVE, state=after, superseded=state.doc_id if state else None)


def _earlier(state: ObjectState | None, event: Notification) -> tuple[str, ...]:
    earlier = remembered(event.sequencer, state.sequencer, state.at, state.earlier) if state else ()
    told = implied(event.sequencer, event.bucket, event.etag) if isinstance(event, UploadNotification) else None
    # In their order: of two of a family the last is remembered.
    return tuple(sorted({*earlier, told})) if told else earlier
