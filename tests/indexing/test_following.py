"""While a job runs, what changes in the places is sent once, and a look that fails is made again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.documents import DeleteNotification, DocumentReport, DocumentStatus, Notification, UploadNotification
from penstock.documents.sequencers import seen
from penstock.errors import PenstockError, Unavailable
from penstock.indexing.planning.plan import plan_events
from penstock.indexing.registry.entries import DocumentEntry
from penstock.indexing.sending.following import Follower, Unsent
from penstock.indexing.sending.listing import Listing, compare
from penstock.indexing.sending.places import Place
from penstock.objects import ObjectMeta
from penstock.testing import ManualClock
from penstock.vector import CollectionName

COMMON: dict[str, Any] = {
    "tenant_id": "t",
    "index_id": "i",
    "model": "m",
    "bucket": "b",
    "created_at": datetime(2026, 1, 1, tzinfo=UTC),
}


def upload(key: str, etag: str) -> UploadNotification:
    return UploadNotification(key=key, etag=etag, size_bytes=1, **COMMON)


def delete(key: str) -> DeleteNotification:
    return DeleteNotification(key=key, **COMMON)


def fresh(unsent: Unsent, *events: Notification, **taken_ns: int) -> list[Notification]:
    """What a look sends, and it arrives; `taken_ns` are the looks that the index has taken, by key."""
    found = unsent.of(Listing(list(events), taken_ns={("b", key): look for key, look in taken_ns.items()}))
    unsent.sent(found)
    return found


def test_an_event_is_sent_again_only_when_something_else_was_told_of_the_object_in_between() -> None:
    unsent = Unsent()
    assert fresh(unsent, upload("a", "1"), upload("b", "1")) == [upload("a", "1"), upload("b", "1")]
    assert fresh(unsent, upload("a", "1"), upload("b", "2")) == [upload("b", "2")]
    assert fresh(unsent, delete("b")) == [delete("b")]
    assert fresh(unsent, delete("b")) == []
    assert fresh(unsent, upload("b", "2")) == [upload("b", "2")]


def test_an_event_that_was_not_sent_is_sent_by_the_next_look() -> None:
    unsent, listing = Unsent(), Listing([upload("a", "1")])
    assert unsent.of(listing) == unsent.of(listing) == [upload("a", "1")]


def test_a_version_that_the_index_took_and_still_lacks_is_sent_again() -> None:
    """It was superseded while it was read, say, and is there again: nobody else would tell."""
    unsent = Unsent()
    first = msgspec.structs.replace(upload("a", "1"), sequencer=seen(10))
    assert fresh(unsent, first) == [first]
    # In the queue, behind an older look.
    again = msgspec.structs.replace(first, sequencer=seen(20))
    assert fresh(unsent, again, a=9) == []
    assert fresh(unsent, again, a=10) == [again]
    assert fresh(unsent, msgspec.structs.replace(first, sequencer=seen(30)), a=10) == []


def test_a_superseded_document_that_is_as_it_was_notified_is_told_by_every_look_until_it_is_searchable() -> None:
    clock, name, place = ManualClock(1_800_000_000_000), CollectionName("t", "i", "m"), Place("b")
    found = {place: [ObjectMeta("a", 1, "1", 0)]}
    unsent = Unsent()
    entries: dict[str, DocumentEntry] = {}
    sent = 0
    for _ in range(3):
        events = unsent.of(compare(name, found, entries.values(), "rule", clock=clock))
        unsent.sent(events)
        sent += len(events)
        # The job takes it, and finds another version there for a moment.
        entries |= plan_events(entries, events, "rule").entries
        for key, entry in entries.items():
            report = DocumentReport(doc_id=str(entry.state.doc_id), status=DocumentStatus.SUPERSEDED)
            entries[key] = msgspec.structs.replace(entry, pending=None, report=report)
    assert sent == 3


def test_a_look_that_fails_in_an_unforeseen_way_is_told_and_the_next_one_is_made() -> None:
    clock = ManualClock()
    sent: list[Notification] = []
    failures: list[str] = []
    looks: list[Exception | None] = [OSError("stale handle"), Unavailable("no room"), None]

    async def look() -> Listing:
        return Listing([upload("a", "1")])

    def send(events: Sequence[Notification]) -> None:
        if error := looks.pop(0):
            raise error
        sent.extend(events)

    async def followed() -> None:
        follower = Follower(look, send, 10, failed=lambda error: failures.append(str(error)), clock=clock)
        task = asyncio.create_task(follower.follow())
        await clock.run_for(30)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(followed())
    assert sent == [upload("a", "1")]
    assert failures == ["the places cannot be listed: OSError: stale handle", "no room"]


def test_places_are_looked_at_every_interval_of_the_clock_and_failures_end_nothing() -> None:
    clock = ManualClock()
    looks: list[Sequence[Notification] | PenstockError] = [
        [upload("a", "1")],
        Unavailable("the folder is away"),
        [upload("a", "1")],
        [upload("a", "2"), delete("b")],
    ]
    sent: list[tuple[float, str]] = []
    failures: list[str] = []

    async def look() -> Listing:
        found = looks.pop(0)
        if isinstance(found, PenstockError):
            raise found
        return Listing(list(found))

    def send(events: Sequence[Notification]) -> None:
        sent.extend((clock.monotonic(), f"{type(event).__name__} {event.key}") for event in events)

    async def followed() -> None:
        follower = Follower(look, send, 10, failed=lambda error: failures.append(error.what), clock=clock)
        task = asyncio.create_task(follower.follow())
        await clock.run_for(40)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(followed())
    assert sent == [(10, "UploadNotification a"), (40, "UploadNotification a"), (40, "DeleteNotification b")]
    assert failures == ["the folder is away"]


def test_a_place_that_cannot_be_looked_at_is_told_and_what_changes_elsewhere_is_sent() -> None:
    clock = ManualClock()
    sent: list[Notification] = []
    failures: list[str] = []

    async def look() -> Listing:
        return Listing([upload("a", "1")], failures=[Unavailable("the folder is away")])

    async def followed() -> None:
        follower = Follower(look, sent.extend, 10, failed=lambda error: failures.append(error.what), clock=clock)
        task = asyncio.create_task(follower.follow())
        await clock.run_for(20)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(followed())
    assert sent == [upload("a", "1")]
    assert failures == ["the folder is away"] * 2


def test_leaving_the_context_ends_the_thread() -> None:
    async def nothing() -> Listing:
        return Listing()

    with Follower(nothing, lambda _: None, 3600) as follower:
        pass
    assert not follower._thread.is_alive()
