"""What a job tells of its work: a summary for whoever runs it, metrics for whoever watches it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents import BatchRequest, DocumentReport, DocumentStatus, FlushReason, vo_key
from penstock.indexing.planning.backlog import Backlog
from penstock.indexing.planning.plan import EventPlan
from penstock.indexing.registry.entries import DocumentEntry
from penstock.indexing.rounds.rounds import Batched, Result
from penstock.indexing.stages.readings import DocumentReading
from penstock.observability import SILENT, Observer, names, trace_id
from penstock.vector import CollectionName

__all__ = ["IndexingSummary", "JobProgress"]

_SEARCHABLE = (DocumentStatus.INDEXED, DocumentStatus.EMPTY, DocumentStatus.METADATA)
# Named in a summary, which is made after every round; the registry has them all.
WAITING_SHOWN_MAX: Final = 20
WARNED_SHOWN_MAX: Final = 20


@dataclass(slots=True)
class IndexingSummary:
    """What a job has done since it was made."""

    documents: int = 0
    chunks: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    # Of the chunks, those whose vectors were there already.
    reused: int = 0
    # Of the chunks, those without a vector: only their words find them.
    words_only: int = 0
    deleted: int = 0
    unchanged: int = 0
    ignored: int = 0
    refused: int = 0
    # Documents that are planned and not done.
    pending: int = 0
    # (key, reason) of those of them whose buckets do not answer; the first, and how many there are.
    waiting: list[tuple[str, str]] = field(default_factory=list)
    held: int = 0
    # (key, status, reason) of documents that did not become searchable.
    set_aside: list[tuple[str, str, str]] = field(default_factory=list)
    # (key, first warning) of documents that became searchable not quite as they are; the first, and how many there are.
    warned: list[tuple[str, str]] = field(default_factory=list)
    with_warnings: int = 0

    def add(self, key: str, report: DocumentReport) -> None:
        if report.status is DocumentStatus.METADATA:
            # Of a side-car file: it is no document.
            self._warn(key, report)
        elif report.status in _SEARCHABLE:
            self.documents += 1
            self.chunks += report.chunks
            self.tokens += report.tokens
            self.cost_usd += report.cost_usd
            self.reused += report.reused
            self.words_only += report.words_only
            self._warn(key, report)
        else:
            self.set_aside.append((key, report.status.value, report.reason or ""))

    def _warn(self, key: str, report: DocumentReport) -> None:
        if report.warnings:
            self.with_warnings += 1
            if len(self.warned) < WARNED_SHOWN_MAX:
                self.warned.append((key, report.warnings[0]))


class JobProgress:
    """Keeps the summary and emits the metrics, so that both say the same."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK, observer: Observer = SILENT) -> None:
        self._clock, self._observer = clock, observer
        self.summary = IndexingSummary()

    def planned(self, plans: Mapping[CollectionName, EventPlan], refused: int) -> None:
        summary, count = self.summary, self._observer.count
        for name, plan in plans.items():
            for entry in plan.entries.values():
                self._begun(name, entry)
            summary.deleted += plan.deleted
            summary.unchanged += plan.unchanged
            summary.ignored += plan.ignored
            count(names.INDEXING_DOCUMENTS, plan.deleted, status=DocumentStatus.DELETED.value)
            count(names.INDEXING_EVENTS, len(plan.entries), outcome="planned")
            count(names.INDEXING_EVENTS, plan.unchanged, outcome="unchanged")
            count(names.INDEXING_EVENTS, plan.ignored, outcome="ignored")
            count(names.INDEXING_DUPLICATES, plan.duplicates, what="event")
        summary.refused += refused
        count(names.INDEXING_EVENTS, refused, outcome="refused")

    def _begun(self, name: CollectionName, entry: DocumentEntry) -> None:
        pending = entry.pending
        if pending is not None:
            trace = trace_id(pending.upload.traceparent)
            told = {"docId": pending.doc_id, "seq": pending.progress.next_seq, "sourceId": pending.upload.source_id}
            self._observer.event(
                names.INDEXING_PLANNED, **_of(name), **told, bucket=entry.bucket, object=entry.key, traceId=trace
            )

    def resumed(self, documents: int, size: int) -> None:
        """A job took up what an earlier one had left."""
        self._observer.count(names.INDEXING_RESUMES, documents)
        self._observer.event(names.INDEXING_RESUMED, documents=documents, bytes=size)

    def batched(self, batched: Mapping[CollectionName, Batched]) -> None:
        """The batches of a round, before they are sent."""
        for name, one in batched.items():
            self._observer.count(names.INDEXING_DUPLICATES, one.duplicates, what="chunk")
            for request in one.requests:
                self._batch(name, request, one.reasons[request.batch_id])

    def _batch(self, name: CollectionName, request: BatchRequest, reason: FlushReason) -> None:
        observer, first, last = self._observer, request.inputs[0], request.inputs[-1]
        observer.count(names.INDEXING_BATCHES, reason=reason.value)
        observer.observe(names.INDEXING_BATCH_TOKENS, request.tokens_total)
        observer.observe(names.INDEXING_BATCH_ITEMS, len(request.inputs))
        observer.event(
            names.INDEXING_BATCHED,
            **_of(name),
            batchId=request.batch_id,
            reason=reason.value,
            items=len(request.inputs),
            tokens=request.tokens_total,
            # Of its first chunk and of its last.
            docId=first.doc_id,
            seq=first.seq,
            lastDocId=last.doc_id,
            lastSeq=last.seq,
        )

    def worked(self, readings: Iterable[DocumentReading], results: Iterable[tuple[CollectionName, Result]]) -> None:
        self._observer.count(names.INDEXING_PARSES, sum(reading.parses for reading in readings))
        for name, result in results:
            self._chunks(result)
            report = result.entry.report
            if result.entry.pending is None and report is not None:
                self.summary.add(result.entry.key, report)
                self._done(name, result, report)

    def _done(self, name: CollectionName, result: Result, report: DocumentReport) -> None:
        observer, pending, now_ms = self._observer, result.pending, self._clock.now_ms()
        observer.count(names.INDEXING_DOCUMENTS, status=report.status.value)
        observer.count(names.INDEXING_WARNINGS, len(report.warnings))
        observer.observe(names.INDEXING_LATENCY_SECONDS, max(0, now_ms - pending.queued_ms) / 1000)
        # No reason and no warning: a parser or a provider may quote the text in it.
        told: dict[str, Any] = {
            "docId": report.doc_id,
            "sourceId": pending.upload.source_id,
            "status": report.status.value,
            "chunks": report.chunks,
            "tokens": report.tokens,
            "warnings": len(report.warnings),
        }
        trace = pending.upload.traceparent
        observer.past_span(
            names.INDEXING_DOCUMENT, pending.queued_ms or now_ms, now_ms, parent=trace, key=_key(name), **told
        )
        event = names.INDEXING_DONE if report.status in _SEARCHABLE else names.INDEXING_SET_ASIDE
        # The number of its last chunk; none for one without text.
        last = report.chunks - 1 if report.chunks else None
        observer.event(
            event,
            **_of(name),
            **told,
            seq=last,
            bucket=result.entry.bucket,
            object=result.entry.key,
            traceId=trace_id(trace),
        )

    def _chunks(self, result: Result) -> None:
        """What this round added to a document."""
        after = result.entry.pending or result.entry.report
        if after is None or result.drops:
            return
        before, count = result.pending, self._observer.count
        reused, words_only = after.reused - before.reused, after.words_only - before.words_only
        count(names.INDEXING_CHUNKS, reused, origin="reused")
        count(names.INDEXING_CHUNKS, words_only, origin="none")
        count(names.INDEXING_CHUNKS, after.chunks - before.chunks - reused - words_only, origin="embedded")
        count(names.INDEXING_TOKENS, after.tokens - before.tokens)
        count(names.INDEXING_COST_USD, max(0.0, after.cost_usd - before.cost_usd))

    def waiting(self, backlog: Backlog) -> None:
        asleep = backlog.asleep
        self.summary.pending, self.summary.held = len(backlog), len(asleep)
        self.summary.waiting = [(entry.key, _why(entry)) for _, entry in asleep[:WAITING_SHOWN_MAX]]
        self._observer.gauge(names.INDEXING_WAITING_DOCUMENTS, len(asleep))
        oldest_ms = min((entry.pending.queued_ms for _, entry in backlog if entry.pending), default=None)
        lag_ms = 0 if oldest_ms is None else max(0, self._clock.now_ms() - oldest_ms)
        self._observer.gauge(names.INDEXING_BACKLOG_DOCUMENTS, len(backlog))
        self._observer.gauge(names.INDEXING_BACKLOG_BYTES, backlog.bytes)
        self._observer.gauge(names.INDEXING_LAG_SECONDS, lag_ms / 1000)

    def retried(self, retries: int) -> None:
        self._observer.count(names.INDEXING_PROVIDER_RETRIES, retries)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one stage of a round that succeeds."""
        began = self._clock.monotonic()
        yield
        self._observer.observe(names.INDEXING_ROUND_SECONDS, self._clock.monotonic() - began, stage=name)


def _key(name: CollectionName) -> str:
    return vo_key(name.tenant, name.index, name.model)


def _of(name: CollectionName) -> dict[str, str]:
    return {"tenantId": name.tenant, "indexId": name.index, "key": _key(name)}


def _why(entry: DocumentEntry) -> str:
    return entry.pending.wait.reason if entry.pending and entry.pending.wait else ""
