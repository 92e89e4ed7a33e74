"""A bucket that does not answer stops nobody else, loses nothing, and is tried again until it does, on real Spark."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.indexing.desk import Desk, prose
from tests.objects.bucket_server import bucket_server

from penstock.documents import DocumentStatus
from penstock.indexing.job.config import IndexingConfig
from penstock.indexing.job.summary import IndexingSummary
from penstock.indexing.rounds import rounds
from penstock.indexing.stages.reading import Reading
from penstock.objects import RetryPolicy, open_store
from penstock.observability import names
from penstock.testing import RecordingObserver
from penstock.testing.following import Following

# Only a test that fails waits so long.
PATIENCE_SECONDS = 240.0
# An endpoint that nobody listens at is given up soon.
QUICK = {"retry": RetryPolicy(deadline_seconds=0.3, pause_seconds_first=0.05)}
NOWHERE: dict[str, Any] = {
    "endpoint": "http://127.0.0.1:9",
    "region": "r",
    "access_key_id": "id",
    "secret_access_key": "key",
    **QUICK,
}
TEXT = prose("far away rivers", 12)


@pytest.fixture
def desk(engine: None, tmp_path: Path) -> Desk:
    (tmp_path / "documents").mkdir()
    return Desk(engine, tmp_path)


@pytest.fixture
def server() -> Iterator[Any]:
    with bucket_server() as running:
        running.objects["far.txt"] = (TEXT.encode(), 1)
        yield running


def far(desk: Desk, server: Any) -> bytes:
    """The event of a document in the bucket of a server, whether that answers or not."""

    async def version() -> str:
        store = await open_store("s3://bucket", read_only=True, **server.s3_options)
        try:
            return (await store.head("far.txt")).version
        finally:
            await store.close()

    return desk.upload("far.txt", etag=asyncio.run(version()), size=len(TEXT), bucket="bucket", tenant="far")


def test_documents_of_a_silent_bucket_wait_with_their_reason_and_the_next_run_reads_them(
    desk: Desk, server: Any
) -> None:
    near, lost = desk.write("near.txt", prose("rivers nearby", 12)), far(desk, server)
    summary = desk.run(near, lost, reading=Reading(options=NOWHERE))
    assert (summary.documents, summary.pending, summary.held) == (1, 1, 1)
    assert [key for key, reason in summary.waiting if "127.0.0.1:9" in reason or "bucket" in reason] == ["far.txt"]
    assert desk.report("near.txt").status is DocumentStatus.INDEXED
    pending = desk.entries("far")["far.txt"].pending
    assert pending is not None
    assert pending.wait is not None
    assert pending.wait.tries == 1
    # Whatever its pause: a new run tries at once.
    again = desk.run(reading=Reading(options={**server.s3_options, **QUICK}))
    assert (again.documents, again.pending) == (1, 0)
    assert desk.report("far.txt", "far").status is DocumentStatus.INDEXED
    assert desk.texts("far.txt", "far")


def test_a_job_that_follows_goes_on_with_the_others_and_reads_the_document_once_its_bucket_answers(
    desk: Desk, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "WAIT_MS_FIRST", 200)
    lost = far(desk, server)
    server.is_away = True
    done, waited, all_done = threading.Event(), threading.Event(), threading.Event()

    def progress(summary: IndexingSummary) -> None:
        if summary.held:
            waited.set()
        if summary.documents == 1 and summary.held:
            done.set()
        if summary.documents == 2:
            all_done.set()

    observer = RecordingObserver()
    config = IndexingConfig(
        desk.url,
        str(desk.folder / "checkpoint"),
        chunking=desk.chunking,
        reading=Reading(options={**server.s3_options, **QUICK}, places=(f"file://{desk.documents}",)),
    )
    with desk.job(config, progress=progress, observer=observer) as job, Following(job) as following:
        desk.send(lost)
        assert waited.wait(PATIENCE_SECONDS)
        desk.send(desk.write("near.txt", prose("rivers nearby", 12)))
        assert done.wait(PATIENCE_SECONDS)
        assert following.is_active
        server.is_away = False
        assert all_done.wait(PATIENCE_SECONDS)
    assert desk.texts("far.txt", "far")
    assert observer.events(names.INDEXING_POSTPONED)
