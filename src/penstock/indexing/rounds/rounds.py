"""One round of one collection: from what was read to batches, and from their vectors to what is written. Pure.

The batcher is made anew for every round from the documents' progress and the count of batches, both of which are
written with the round's vectors: after a crash the same chunks make the same batches with the same ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from penstock.documents import (
    Batcher,
    BatcherLimits,
    BatcherState,
    BatchRequest,
    Chunk,
    ChunkEnvelope,
    ChunkMetadata,
    DocumentEnded,
    DocumentReport,
    DocumentState,
    DocumentStatus,
    EndDocument,
    Flush,
    FlushReason,
    Progress,
    UploadNotification,
)
from penstock.indexing.planning.backlog import Share
from penstock.indexing.registry.entries import BatcherCount, DocumentEntry, Pending, Wait
from penstock.indexing.rounds.answers import Answers, Unanswered, chunk_name
from penstock.indexing.rounds.leads import LedChunk, with_leads
from penstock.indexing.stages.embedding import UNKNOWN_TEXT
from penstock.indexing.stages.readings import DocumentReading, ReadOutcome
from penstock.vector import CollectionName

__all__ = [
    "Batched",
    "Result",
    "batch_round",
    "by_collection",
    "conclude",
    "postponed",
    "scouts",
]

T = TypeVar("T")

# Milliseconds until a bucket that did not answer is asked again, doubled with every try up to the second: a restart is
# noticed soon, and a bucket that is gone for days costs everybody else one short pause in ten minutes.
WAIT_MS_FIRST: Final = 15_000
WAIT_MS_MAX: Final = 600_000
# The same for a model: it is asked for a word, which costs the others ten seconds at most.
MODEL_WAIT_MS_MAX: Final = 120_000
# A provider that asks for more is asked after this all the same: clocks and configurations are wrong at times.
_ASKED_SECONDS_MAX: Final = 3600.0
_DOUBLINGS_MAX: Final = 16

# A report is for people, and its entry is written with every round: a large text may have a fault in every chunk.
WARNINGS_MAX: Final = 100
_FURTHER: Final = re.compile(r"and (\d+) further warnings")


@dataclass(frozen=True, slots=True)
class Batched:
    """The requests of a round, and the batcher's state behind it."""

    requests: list[BatchRequest]
    count: BatcherCount
    reports: Mapping[str, DocumentReport]
    open: Mapping[str, DocumentState]
    # By batch id, what closed each of the requests; and how many chunks were dropped because they had been taken.
    reasons: Mapping[str, FlushReason] = field(default_factory=dict)
    duplicates: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """What a round did to one document: its entry, its new chunks, and the version that became current."""

    entry: DocumentEntry
    pending: Pending
    # Chunks to write, with or without a vector, by their ids and in the order of the text.
    chunks: Mapping[str, LedChunk] = field(default_factory=dict)
    flips: bool = False
    drops: bool = False


def by_collection(pairs: Iterable[tuple[CollectionName, T]]) -> dict[CollectionName, list[T]]:
    """What belongs to each collection, in its order: a round may be of as many collections as it has documents."""
    found: dict[CollectionName, list[T]] = {}
    for name, one in pairs:
        found.setdefault(name, []).append(one)
    return found


def postponed(
    shares: Sequence[Share], readings: Sequence[DocumentReading], now_ms: int, turn: int
) -> list[tuple[CollectionName, DocumentEntry]]:
    """The entries of documents whose buckets did not answer: they wait from `turn` on, and are tried again later.

    Empty when every bucket answered. Documents that were not asked for are as they were, and so are asked for next:
    objects that cannot be had do not hold back the others of their bucket.
    """
    read = list(zip(shares, readings, strict=True))
    answered = {
        share.entry.bucket for share, reading in read if not reading.away or reading.outcome is ReadOutcome.APART
    }
    asked = [(share, reading) for share, reading in read if reading.outcome is ReadOutcome.AWAY]
    return [
        (share.name, _waiting(share, reading, now_ms, turn + place, whole=share.entry.bucket not in answered))
        for place, (share, reading) in enumerate(asked)
    ]


def _waiting(share: Share, reading: DocumentReading, now_ms: int, turn: int, *, whole: bool) -> DocumentEntry:
    pending = share.pending
    tries = pending.wait.tries + 1 if pending.wait else 1
    wait = Wait("; ".join(dict.fromkeys(reading.detail)), tries, now_ms + _pause_ms(tries, WAIT_MS_MAX), whole)
    return msgspec.structs.replace(share.entry, pending=msgspec.structs.replace(pending, turn=turn, wait=wait))


def scouts(
    shares: Sequence[Share],
    unanswered: Iterable[Unanswered],
    now_ms: int,
    source_of: Callable[[CollectionName], str] = lambda name: name.model,
) -> list[tuple[CollectionName, Result]]:
    """One document of each source that did not answer: it sleeps, and all others of the source wait with it.

    When its time comes it is tried alone. The others are as they were, and so are their turns.
    """
    found: dict[str, tuple[CollectionName, Result]] = {}
    left = {one.name: one for one in unanswered}
    for share in shares:
        one, pending = left.get(share.name), share.pending
        if one is None or pending.doc_id not in one.documents or source_of(share.name) in found:
            continue
        tries = pending.wait.tries + 1 if pending.wait and pending.wait.model else 1
        asked_ms = round(min(one.answer.after_seconds or 0.0, _ASKED_SECONDS_MAX) * 1000)
        until_ms = now_ms + max(asked_ms, _pause_ms(tries, MODEL_WAIT_MS_MAX))
        wait = Wait(one.answer.reason, tries, until_ms, whole=True, model=True)
        entry = msgspec.structs.replace(share.entry, pending=msgspec.structs.replace(pending, wait=wait))
        found[source_of(share.name)] = (share.name, Result(entry, pending))
    return list(found.values())


def _pause_ms(tries: int, most_ms: int) -> int:
    pause_ms: int = WAIT_MS_FIRST * 2 ** min(tries - 1, _DOUBLINGS_MAX)
    return min(most_ms, pause_ms)


def batch_round(
    name: CollectionName,
    read: Iterable[tuple[DocumentEntry, DocumentReading]],
    count: BatcherCount,
    limits: BatcherLimits,
    reused: Set[str] = frozenset(),
) -> Batched:
    """All chunks of a round in batches; nothing waits for the next one. Their time is the count's, and not a clock's.

    Chunks in `reused` are counted like all others, and not sent.
    """
    state = BatcherState(counter=count.counter, clock_ms=count.clock_ms)
    chunks: list[ChunkEnvelope] = []
    ends: list[EndDocument] = []
    traces: dict[str, str] = {}
    for entry, reading in read:
        pending = entry.pending
        assert pending is not None
        if reading.void or reading.metadata is not None:
            continue
        state.documents[pending.doc_id] = _resumed(pending)
        chunks += [_envelope(name, pending, chunk) for chunk in reading.chunks]
        if pending.upload.traceparent:
            traces[pending.doc_id] = pending.upload.traceparent
        if reading.outcome is ReadOutcome.END:
            last = pending.progress.next_seq + len(reading.chunks) - 1
            ends.append(EndDocument(doc_id=pending.doc_id, seq_max=last, warnings=reading.detail))
    batcher = Batcher(name.tenant, name.index, name.model, limits, state=state)
    outputs = batcher.group(chunks, ends, now_ms=count.clock_ms)
    outputs += batcher.tick(now_ms=count.clock_ms + limits.flush_after_ms)
    after = batcher.state
    tokens = {chunk.chunk_id: chunk.token_count for chunk in chunks}
    flushes = [out for out in outputs if isinstance(out, Flush)]
    sent = [_sent(flush.request, tokens, reused) for flush in flushes]
    return Batched(
        requests=[_in_traces(request, traces) for request in sent if request],
        reasons={flush.identity.batch_id: flush.reason for flush in flushes},
        duplicates=batcher.counts.duplicates_seen + batcher.counts.duplicates_below,
        count=BatcherCount(after.counter, after.clock_ms, count.schedule.worked()),
        reports={out.report.doc_id: out.report for out in outputs if isinstance(out, DocumentEnded)},
        open=after.documents,
    )


def _sent(request: BatchRequest, tokens: Mapping[str, int], reused: Set[str]) -> BatchRequest | None:
    """A request without what is known already; its place among the batches stays its own."""
    if not any(item.chunk_id in reused for item in request.inputs):
        return request
    inputs = tuple(item for item in request.inputs if item.chunk_id not in reused)
    total = sum(tokens[item.chunk_id] for item in inputs)
    return msgspec.structs.replace(request, inputs=inputs, tokens_total=total) if inputs else None


def _in_traces(request: BatchRequest, traces: Mapping[str, str]) -> BatchRequest:
    """With the traces that its documents are of."""
    found = dict.fromkeys(traces[item.doc_id] for item in request.inputs if item.doc_id in traces)
    return msgspec.structs.replace(request, traceparents=tuple(found)) if found else request


def conclude(
    entry: DocumentEntry,
    reading: DocumentReading,
    batched: Batched,
    answers: Answers,
    fingerprint: str,
    turn: int,
    warnings: Sequence[str] = (),
) -> Result:
    """What becomes of one document; one that is not done waits from `turn` on. `warnings` are of its metadata."""
    pending = entry.pending
    assert pending is not None
    if reading.failed:
        return _failed(entry, pending, reading)
    if reading.void:
        return _begun_again(entry, pending, turn)
    if reading.metadata is not None:
        return _described(entry, pending, reading, fingerprint)
    parsed = bool(reading.parses or pending.parsed)
    led, outline = with_leads(pending, reading.chunks, has_headings=parsed, title=reading.title)
    named = {chunk_name(pending.doc_id, one.chunk): one for one in led}
    sent = {name: one for name, one in named.items() if name in answers}
    cost = pending.cost_usd + sum(map(answers.cost_usd, sent))
    reused = pending.reused + sum(name in answers.reused for name in sent)
    reasons = {name: reason for name in sent if (reason := answers.reason(name))}
    refused = [f"chunk {sent[name].chunk.seq}: {reason}" for name, reason in reasons.items()]
    lost = pending.lost + sum(reason != UNKNOWN_TEXT for reason in reasons.values())
    words_only = pending.words_only + len(reasons)
    report = batched.reports.get(pending.doc_id)
    if report is None:
        state = batched.open[pending.doc_id]
        further = msgspec.structs.replace(
            pending,
            upload=_pinned(pending.upload, reading.version),
            turn=turn,
            progress=Progress(state.next_seq, reading.next_byte_start),
            text_bytes=reading.text_bytes,
            parsed=reading.parsed,
            chunks=state.chunks,
            tokens=state.tokens,
            cost_usd=cost,
            reused=reused,
            lost=lost,
            words_only=words_only,
            warnings=bounded((*state.warnings, *reading.detail, *refused)),
            outline=outline,
            wait=None,
        )
        return Result(msgspec.structs.replace(entry, pending=further), pending, sent)
    report = msgspec.structs.replace(
        report, cost_usd=cost, reused=reused, warnings=(*report.warnings, *refused, *warnings)
    )
    if 0 < report.chunks <= lost:
        return _given_up(entry, pending, _without_vectors(report))
    report = _found_by_words(report, words_only)
    done = msgspec.structs.replace(
        entry,
        pending=None,
        current=pending.doc_id,
        fingerprint=fingerprint,
        report=report,
        metadata=pending.upload.metadata,
    )
    return Result(done, pending, sent, flips=True)


def _described(entry: DocumentEntry, pending: Pending, reading: DocumentReading, fingerprint: str) -> Result:
    """Of a side-car file: what it says is kept in its entry. It has no rows of its own."""
    report = DocumentReport(doc_id=pending.doc_id, status=DocumentStatus.METADATA, warnings=bounded(reading.detail))
    done = msgspec.structs.replace(
        entry,
        pending=None,
        current=pending.doc_id,
        fingerprint=fingerprint,
        report=report,
        metadata=msgspec.json.decode(reading.metadata or "{}", type=dict[str, Any]),
    )
    return Result(done, pending)


def _pinned(upload: UploadNotification, version: str | None) -> UploadNotification:
    """An event may name no version; the one that was read first is then the one to go on with."""
    return upload if upload.etag else msgspec.structs.replace(upload, etag=version)


def bounded(warnings: Iterable[str]) -> tuple[str, ...]:
    """The first of them; the last line counts the others, those of a count before it included."""
    kept: list[str] = []
    further = 0
    for warning in warnings:
        if found := _FURTHER.fullmatch(warning):
            further += int(found.group(1))
        elif len(kept) < WARNINGS_MAX:
            kept.append(warning)
        else:
            further += 1
    return (*kept, f"and {further} further warnings") if further else tuple(kept)


def _failed(entry: DocumentEntry, pending: Pending, reading: DocumentReading) -> Result:
    """The version is given up; the one that is searchable stays so."""
    return _given_up(
        entry,
        pending,
        DocumentReport(
            doc_id=pending.doc_id, status=DocumentStatus(reading.outcome), reason="; ".join(reading.detail) or None
        ),
    )


def _without_vectors(report: DocumentReport) -> DocumentReport:
    """Of a document none of whose chunks the model took: nobody would find it, and what was found before would be gone."""
    reason = f"the model refused all of its {report.chunks} chunks"
    warnings = bounded(report.warnings)
    return msgspec.structs.replace(report, status=DocumentStatus.QUARANTINED, reason=reason, warnings=warnings)


def _found_by_words(report: DocumentReport, words_only: int) -> DocumentReport:
    """Of a document that takes over, with the chunks that have no vector counted before all other warnings."""
    told = f"{words_only:,} of {report.chunks:,} chunks have no vector: only their words find them"
    warnings = bounded((told, *report.warnings) if words_only else report.warnings)
    return msgspec.structs.replace(report, words_only=words_only, warnings=warnings)


def _given_up(entry: DocumentEntry, pending: Pending, report: DocumentReport) -> Result:
    return Result(msgspec.structs.replace(entry, pending=None, report=report), pending, drops=True)


def _begun_again(entry: DocumentEntry, pending: Pending, turn: int) -> Result:
    anew = pending.anew(fingerprint=pending.fingerprint, turn=turn)
    return Result(msgspec.structs.replace(entry, pending=anew), pending, drops=True)


def _resumed(pending: Pending) -> DocumentState:
    return DocumentState(
        next_seq=pending.progress.next_seq,
        chunks=pending.chunks,
        tokens=pending.tokens,
        warnings=list(pending.warnings),
    )


def _envelope(name: CollectionName, pending: Pending, chunk: Chunk) -> ChunkEnvelope:
    source = pending.upload.source_id
    return ChunkEnvelope(
        doc_id=pending.doc_id,
        chunk_id=chunk_name(pending.doc_id, chunk),
        seq=chunk.seq,
        text=chunk.text,
        byte_range=(chunk.start, chunk.end),
        token_count=chunk.tokens,
        metadata=ChunkMetadata(tenant_id=name.tenant, index_id=name.index, model=name.model, source_id=source),
    )
