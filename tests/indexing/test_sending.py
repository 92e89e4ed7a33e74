"""There is something to do when the queue holds what is not decided on, or a document was begun and not done."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from penstock.documents import UploadNotification
from penstock.indexing.planning.plan import plan_events
from penstock.indexing.registry.entries import (
    REGISTRY_DIMENSIONS,
    REGISTRY_METRIC,
    SOURCE,
    VECTOR_PATH,
    DocumentEntry,
    entry_rows,
    registry_name,
)
from penstock.indexing.search.doors import PlainDoors
from penstock.indexing.sending.places import url_of
from penstock.indexing.sending.queue import is_waiting, send
from penstock.observability import names
from penstock.testing import RecordingObserver
from penstock.vector import Changes, CollectionName, VectorStore

UPLOAD = UploadNotification(
    tenant_id="t",
    index_id="i",
    model="m",
    bucket="b",
    key="k",
    size_bytes=1,
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
)


def decided(url: str, entry: DocumentEntry, position: int) -> None:
    """What the job writes when it has taken events from the queue."""

    async def write() -> None:
        name = registry_name(CollectionName("t", "i", "m"))
        async with await VectorStore.open(url, VECTOR_PATH) as store:
            registry = await store.collection(
                name.tenant, name.index, name.model, dimensions=REGISTRY_DIMENSIONS, metric=REGISTRY_METRIC
            )
            await store.write(Changes(SOURCE, position).upsert(registry, entry_rows([entry])), durable=True)

    asyncio.run(write())


def test_events_wait_until_they_are_decided_on_and_documents_until_they_are_done(tmp_path: Path) -> None:
    url = url_of(str(tmp_path / "store"))
    assert not asyncio.run(is_waiting(url))
    send(url, [UPLOAD])
    assert asyncio.run(is_waiting(url))
    (begun,) = plan_events({}, [UPLOAD], "rule").entries.values()
    decided(url, begun, 0)
    assert asyncio.run(is_waiting(url))
    decided(url, msgspec.structs.replace(begun, pending=None), 1)
    assert not asyncio.run(is_waiting(url))


def test_sending_nothing_makes_no_store(tmp_path: Path) -> None:
    send(url_of(str(tmp_path / "store")), [])
    assert not (tmp_path / "store").exists()


def test_sending_is_told_in_the_trace_of_every_event_that_has_one(tmp_path: Path) -> None:
    observer = RecordingObserver()
    first, second = (f"00-{digit * 32}-{digit * 16}-01" for digit in "12")
    events = [msgspec.structs.replace(UPLOAD, key=str(n), traceparent=t) for n, t in enumerate((first, first, second))]
    send(f"file://{tmp_path}/store", [*events, UPLOAD], PlainDoors(observer=observer))
    spans = observer.spans(names.INDEXING_NOTIFY)
    assert spans == [{"events": 4}, {"events": 2, "parent": first}, {"events": 1, "parent": second}]
    assert observer.events(names.INDEXING_NOTIFIED)[0]["events"] == 4
    assert observer.counted(names.BUFFER_RECORDS) == 4
