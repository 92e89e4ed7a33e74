"""The summary and the metrics say the same."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from penstock.documents import DocumentReport, DocumentStatus, UploadNotification
from penstock.indexing.job.summary import JobProgress
from penstock.indexing.planning.backlog import Backlog
from penstock.indexing.planning.plan import EventPlan, RoundLimits, plan_events
from penstock.indexing.registry.entries import DocumentEntry
from penstock.indexing.rounds.rounds import Result
from penstock.indexing.stages.readings import DocumentReading
from penstock.observability import names
from penstock.testing import ManualClock, RecordingObserver
from penstock.vector import CollectionName

NAME = CollectionName("acme", "handbook", "m")


def planned(clock: ManualClock) -> DocumentEntry:
    upload = UploadNotification(
        tenant_id="acme",
        index_id="handbook",
        bucket="b",
        key="note.txt",
        etag="e",
        size_bytes=500,
        model="m",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    (entry,) = plan_events({}, [upload], "rule", queued_ms=clock.now_ms()).entries.values()
    return entry


def result(
    entry: DocumentEntry, status: DocumentStatus, *, chunks: int = 0, reused: int = 0, words_only: int = 0
) -> Result:
    """The last round of a document that had three chunks before it."""
    assert entry.pending is not None
    before = msgspec.structs.replace(entry.pending, chunks=3, tokens=30, cost_usd=0.3)
    report = DocumentReport(
        doc_id=before.doc_id,
        status=status,
        chunks=chunks,
        tokens=chunks * 10,
        cost_usd=0.5,
        reused=reused,
        words_only=words_only,
    )
    drops = status is DocumentStatus.QUARANTINED
    return Result(msgspec.structs.replace(entry, pending=None, report=report), before, flips=not drops, drops=drops)


def test_what_a_round_adds_is_counted_once_and_what_is_set_aside_adds_no_chunks() -> None:
    clock, observer = ManualClock(), RecordingObserver()
    told = JobProgress(clock=clock, observer=observer)
    entry = planned(clock)
    clock.advance(2.5)
    results = [
        result(entry, DocumentStatus.INDEXED, chunks=9, reused=2, words_only=1),
        result(entry, DocumentStatus.QUARANTINED),
    ]
    told.worked([DocumentReading(parses=1), DocumentReading()], [(NAME, each) for each in results])
    assert (told.summary.documents, told.summary.chunks, told.summary.reused) == (1, 9, 2)
    assert told.summary.words_only == 1
    assert [key for key, _, _ in told.summary.set_aside] == ["note.txt"]
    assert observer.counted(names.INDEXING_CHUNKS, origin="reused") == 2
    assert observer.counted(names.INDEXING_CHUNKS, origin="none") == 1
    assert observer.counted(names.INDEXING_CHUNKS, origin="embedded") == 3
    assert observer.counted(names.INDEXING_TOKENS) == 60
    assert observer.counted(names.INDEXING_PARSES) == 1
    assert observer.observed(names.INDEXING_LATENCY_SECONDS) == [2.5, 2.5]


def test_what_waits_and_how_long_the_oldest_has() -> None:
    clock, observer = ManualClock(), RecordingObserver()
    told, backlog = JobProgress(clock=clock, observer=observer), Backlog(RoundLimits())
    backlog.put(CollectionName("acme", "handbook", "m"), planned(clock))
    clock.advance(7)
    told.waiting(backlog)
    assert told.summary.pending == observer.gauged(names.INDEXING_BACKLOG_DOCUMENTS) == 1
    assert observer.gauged(names.INDEXING_BACKLOG_BYTES) == 500
    assert observer.gauged(names.INDEXING_LAG_SECONDS) == 7


def test_plans_are_counted_by_what_they_decided() -> None:
    observer = RecordingObserver()
    told = JobProgress(observer=observer)
    told.planned({NAME: EventPlan(deleted=2, unchanged=3, ignored=1, duplicates=1)}, refused=4)
    summary = told.summary
    assert (summary.deleted, summary.unchanged, summary.ignored, summary.refused) == (2, 3, 1, 4)
    assert observer.counted(names.INDEXING_DOCUMENTS, status="deleted") == 2
    assert observer.counted(names.INDEXING_EVENTS, outcome="refused") == 4
    assert observer.counted(names.INDEXING_DUPLICATES, what="event") == 1
