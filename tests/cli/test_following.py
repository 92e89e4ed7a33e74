"""While a job runs, what changes in the places is sent once, and a look that fails is made again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from penstock.cli.following import Follower, Unsent
from penstock.documents import DeleteNotification, Notification, UploadNotification
from penstock.errors import PenstockError, Unavailable
from penstock.testing import ManualClock

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


def test_an_event_is_sent_again_only_when_something_else_was_told_of_the_object_in_between() -> None:
    unsent = Unsent()
    assert unsent.of([upload("a", "1"), upload("b", "1")]) == [upload("a", "1"), upload("b", "1")]
    assert unsent.of([upload("a", "1"), upload("b", "2")]) == [upload("b", "2")]
    assert unsent.of([delete("b")]) == [delete("b")]
    assert unsent.of([delete("b")]) == []
    assert unsent.of([upload("b", "2")]) == [upload("b", "2")]


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

    async def look() -> Sequence[Notification]:
        found = looks.pop(0)
        if isinstance(found, PenstockError):
            raise found
        return found

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


def test_leaving_the_context_ends_the_thread() -> None:
    async def nothing() -> Sequence[Notification]:
        return []

    with Follower(nothing, lambda _: None, 3600) as follower:
        pass
    assert not follower._thread.is_alive()
