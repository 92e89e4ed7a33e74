"""One round of one collection: from what was read to batches, and from their vectors to what is written. Pure.

The batcher is made anew for every round from the documents' progress and the count of batches, both of which are
written with the round's vectors: after a crash the same chunks make the same batches with the same ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from penstock.documents import (
    Batcher,
    BatcherLimits,
    BatchRequest,
    ChunkEnvelope,
    ChunkMetadata,
    DocumentEnded,
    DocumentReport,
    DocumentStatus,
    EndDocument,
    Flush,
    Progress,
    chunk_id,
)
from penstock.documents.batcher_state import BatcherState, DocumentState, pack, unpack
from penstock.pipelines.reading import Outcome
from penstock.pipelines.registry import BatcherCount, DocumentEntry, Pending
from penstock.vector import CollectionName

__all__ = ["Batched", "DocumentReading", "Result", "batch_round", "conclude", "readings_of"]

_FAILED = (Outcome.QUARANTINED, Outcome.SUPERSEDED)


@dataclass(slots=True)
class DocumentReading:
    """What a round read of one document. A document that failed has no chunks: those of this round mean nothing."""

    chunks: list[dict[str, Any]] = field(default_factory=list)
    outcome: str = Outcome.MORE
    next_byte_start: int = 0
    detail: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return self.outcome in _FAILED


@dataclass(frozen=True, slots=True)
class Batched:
    """The requests of a round, and the batcher's state behind it."""

    requests: list[BatchRequest]
    count: BatcherCount
    reports: Mapping[str, DocumentReport]
    open: Mapping[str, DocumentState]


@dataclass(frozen=True, slots=True)
class Result:
    """What a round did to one document: its entry, its new rows, and the version that became current."""

    entry: DocumentEntry
    pending: Pending
    rows: pa.Table | None = None
    flips: bool = False
    drops: bool = False


def readings_of(rows: Iterable[dict[str, Any]]) -> dict[str, DocumentReading]:
    """By objectKey, from the rows that executors yielded."""
    readings: dict[str, DocumentReading] = {}
    for row in rows:
        reading = readings.setdefault(row["object_key"], DocumentReading())
        if row["outcome"] == Outcome.CHUNK:
            reading.chunks.append(row)
            continue
        reading.outcome, reading.detail = row["outcome"], tuple(row["detail"])
        reading.next_byte_start = row["next_byte_start"] or 0
    for reading in readings.values():
        if reading.failed:
            reading.chunks.clear()
    return readings


def batch_round(
    name: CollectionName,
    entries: Iterable[DocumentEntry],
    readings: Mapping[str, DocumentReading],
    count: BatcherCount,
    limits: BatcherLimits,
    now_ms: int,
) -> Batched:
    """All chunks of a round in batches; nothing waits for the next one."""
    state = BatcherState(counter=count.counter, clock_ms=count.clock_ms)
    chunks: list[ChunkEnvelope] = []
    ends: list[EndDocument] = []
    for entry in entries:
        reading, pending = readings[entry.object_key], entry.pending
        assert pending is not None
        if reading.failed:
            continue
        state.documents[pending.doc_id] = _resumed(pending)
        chunks += [_envelope(name, pending.doc_id, row) for row in reading.chunks]
        if reading.outcome == Outcome.END:
            last = pending.progress.next_seq + len(reading.chunks) - 1
            ends.append(EndDocument(doc_id=pending.doc_id, seq_max=last, warnings=reading.detail))
    batcher = Batcher(name.tenant, name.index, name.model, limits, packed=pack(state))
    outputs = batcher.group(chunks, ends, now_ms=now_ms)
    outputs += batcher.tick(now_ms=max(now_ms, count.clock_ms) + limits.flush_after_ms)
    after = unpack(batcher.pack())
    return Batched(
        requests=[output.request for output in outputs if isinstance(output, Flush)],
        count=BatcherCount(after.counter, after.clock_ms),
        reports={out.report.doc_id: out.report for out in outputs if isinstance(out, DocumentEnded)},
        open=after.documents,
    )


def conclude(
    entry: DocumentEntry,
    reading: DocumentReading,
    batched: Batched,
    embedded: Mapping[str, dict[str, Any]],
    fingerprint: str,
) -> Result:
    """What becomes of one document. `embedded` holds the rows of the embedding stage by chunk id."""
    pending = entry.pending
    assert pending is not None
    if reading.failed:
        return _failed(entry, pending, reading)
    named = {chunk_id(pending.doc_id, row["start"], row["end"]): row for row in reading.chunks}
    answers = [(name, row, embedded[name]) for name, row in named.items() if name in embedded]
    cost = pending.cost_usd + sum(answer["cost_usd"] for _, _, answer in answers)
    refused = [f"chunk {row['seq']}: {answer['reason']}" for _, row, answer in answers if answer["vector"] is None]
    rows = _vector_rows(entry, [answer for answer in answers if answer[2]["vector"] is not None])
    report = batched.reports.get(pending.doc_id)
    if report is None:
        state = batched.open[pending.doc_id]
        further = msgspec.structs.replace(
            pending,
            progress=Progress(state.next_seq, reading.next_byte_start),
            chunks=state.chunks,
            tokens=state.tokens,
            cost_usd=cost,
            warnings=(*state.warnings, *reading.detail, *refused),
        )
        return Result(msgspec.structs.replace(entry, pending=further), pending, rows)
    report = msgspec.structs.replace(report, cost_usd=cost, warnings=(*report.warnings, *refused))
    done = msgspec.structs.replace(entry, pending=None, current=pending.doc_id, fingerprint=fingerprint, report=report)
    return Result(done, pending, rows, flips=True)


def _failed(entry: DocumentEntry, pending: Pending, reading: DocumentReading) -> Result:
    """The version is given up; the one that is searchable stays so."""
    report = DocumentReport(
        doc_id=pending.doc_id, status=DocumentStatus(reading.outcome), reason="; ".join(reading.detail) or None
    )
    return Result(msgspec.structs.replace(entry, pending=None, report=report), pending, drops=True)


def _resumed(pending: Pending) -> DocumentState:
    return DocumentState(
        next_seq=pending.progress.next_seq,
        chunks=pending.chunks,
        tokens=pending.tokens,
        warnings=list(pending.warnings),
    )


def _envelope(name: CollectionName, document: str, row: dict[str, Any]) -> ChunkEnvelope:
    return ChunkEnvelope(
        doc_id=document,
        chunk_id=chunk_id(document, row["start"], row["end"]),
        seq=row["seq"],
        text=row["text"],
        byte_range=(row["start"], row["end"]),
        token_count=row["tokens"],
        metadata=ChunkMetadata(tenant_id=name.tenant, index_id=name.index, model=name.model),
    )


def _vector_rows(entry: DocumentEntry, answers: list[tuple[str, dict[str, Any], dict[str, Any]]]) -> pa.Table | None:
    if not answers:
        return None
    places = [
        {"bucket": entry.bucket, "key": entry.key, "seq": row["seq"], "start": row["start"], "end": row["end"]}
        for _, row, _ in answers
    ]
    return pa.table(
        {
            "id": pa.array([name for name, _, _ in answers], pa.string()),
            "vector": pa.array([answer["vector"] for _, _, answer in answers], pa.list_(pa.float32())),
            "text": pa.array([row["text"] for _, row, _ in answers], pa.string()),
            "attributes": pa.array(places),
        }
    )
