"""A round makes the same batches from the same chunks, and decides what becomes of each document."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from penstock.documents import (
    START,
    BatcherLimits,
    DocumentStatus,
    ObjectState,
    Progress,
    UploadNotification,
    chunk_id,
    doc_id_of,
)
from penstock.pipelines.reading import Outcome
from penstock.pipelines.registry import BatcherCount, DocumentEntry, Pending
from penstock.pipelines.rounds import Batched, DocumentReading, batch_round, conclude, readings_of
from penstock.vector import CollectionName

NAME = CollectionName("acme", "handbook", "m")
AT = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS = BatcherLimits(max_items_per_batch=2)


def entry(key: str, progress: Progress = START) -> DocumentEntry:
    upload = UploadNotification(
        tenant_id="acme", index_id="handbook", model="m", bucket="b", key=key, etag="e", size_bytes=1, created_at=AT
    )
    document = doc_id_of(upload)
    pending = Pending(
        upload=upload,
        doc_id=document,
        version=f"{document}:2",
        fingerprint="rule",
        progress=progress,
        chunks=progress.next_seq,
    )
    state = ObjectState(at=AT, doc_id=document)
    return DocumentEntry(object_key=key, bucket="b", key=key, state=state, current="before", pending=pending)


def reading(outcome: str, *seqs: int) -> DocumentReading:
    chunks: list[dict[str, Any]] = [
        {"seq": seq, "start": seq * 10, "end": seq * 10 + 10, "tokens": 3, "text": f"words {seq}"} for seq in seqs
    ]
    return DocumentReading(chunks, outcome, next_byte_start=len(seqs) * 10)


def vectors(batched: Batched) -> dict[str, dict[str, Any]]:
    return {
        item.chunk_id: {"vector": [1.0, 0.0], "cost_usd": 0.5, "reason": None}
        for request in batched.requests
        for item in request.inputs
    }


def test_a_replayed_round_makes_the_same_batches_and_the_next_one_counts_on() -> None:
    documents = [entry("a.txt"), entry("b.txt")]
    readings = {"a.txt": reading(Outcome.END, 0, 1, 2), "b.txt": reading(Outcome.MORE, 0)}
    first = batch_round(NAME, documents, readings, BatcherCount(), LIMITS, 1000)
    again = batch_round(NAME, documents[::-1], readings, BatcherCount(), LIMITS, 1000)
    assert first.requests == again.requests
    assert sorted(len(request.inputs) for request in first.requests) == [2, 2]
    later = batch_round(NAME, documents[:1], readings, first.count, LIMITS, 500)
    batches = [request.batch_id for request in [*first.requests, *later.requests]]
    assert len(set(batches)) == len(batches)
    assert later.count.clock_ms >= first.count.clock_ms


def test_a_document_that_ended_becomes_current_with_its_report() -> None:
    document = entry("a.txt", Progress(1, 10))
    readings = {"a.txt": reading(Outcome.END, 1, 2)}
    batched = batch_round(NAME, [document], readings, BatcherCount(), LIMITS, 1000)
    result = conclude(document, readings["a.txt"], batched, vectors(batched), "rule")
    assert document.pending is not None
    assert (result.flips, result.entry.pending, result.entry.current) == (True, None, document.pending.doc_id)
    assert result.entry.report is not None
    assert (result.entry.report.chunks, result.entry.report.cost_usd) == (3, 1.0)
    assert result.rows is not None
    assert result.rows["id"].to_pylist() == [
        chunk_id(document.pending.doc_id, 10, 20),
        chunk_id(document.pending.doc_id, 20, 30),
    ]


def test_a_document_with_more_to_read_keeps_its_progress_and_stays_hidden() -> None:
    document = entry("a.txt")
    readings = {"a.txt": reading(Outcome.MORE, 0, 1)}
    batched = batch_round(NAME, [document], readings, BatcherCount(), LIMITS, 1000)
    result = conclude(document, readings["a.txt"], batched, vectors(batched), "rule")
    assert result.entry.pending is not None
    assert (result.flips, result.entry.current) == (False, "before")
    assert (result.entry.pending.progress, result.entry.pending.chunks) == (Progress(2, 20), 2)


def test_a_document_that_failed_leaves_the_version_before_it_searchable() -> None:
    document = entry("a.txt")
    rows = [
        {"object_key": "a.txt", "outcome": Outcome.CHUNK, "seq": 0},
        {"object_key": "a.txt", "outcome": Outcome.QUARANTINED, "detail": ["broken"], "next_byte_start": None},
    ]
    readings = readings_of(rows)
    batched = batch_round(NAME, [document], readings, BatcherCount(), LIMITS, 1000)
    result = conclude(document, readings["a.txt"], batched, {}, "rule")
    assert (batched.requests, result.drops, result.flips, result.entry.current) == ([], True, False, "before")
    assert result.entry.report is not None
    assert (result.entry.report.status, result.entry.report.reason) == (DocumentStatus.QUARANTINED, "broken")


def test_a_chunk_that_the_model_does_not_take_is_a_warning() -> None:
    document = entry("a.txt")
    readings = {"a.txt": reading(Outcome.END, 0, 1)}
    batched = batch_round(NAME, [document], readings, BatcherCount(), LIMITS, 1000)
    answers = vectors(batched)
    name = next(iter(answers))
    answers[name] |= {"vector": None, "reason": "too strange"}
    result = conclude(document, readings["a.txt"], batched, answers, "rule")
    assert result.entry.report is not None
    assert result.entry.report.warnings == ("chunk 0: too strange",)
    assert result.rows is not None
    assert result.rows.num_rows == 1
