"""The batcher: chunks in any order and any number become embedding batches, each chunk in exactly one.

It is a state machine without I/O, one a key `{tenant}:{index}:{model}`. Time comes in as `now_ms`, which must be
replayed with the chunks (Spark's time of the micro-batch), never read from a clock: then the same input gives the same
batches with the same ids after any crash. A document's chunks are taken strictly by `seq`; what comes early waits in a
bounded gap, what comes again is dropped. A batch closes before the chunk that would pass its tokens, after the one
that fills its items, some time after the last append, and when a document ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TypeAlias

from penstock.documents.batcher_state import (
    BatcherLimits,
    BatcherState,
    DocumentState,
    PendingChunk,
    Recent,
)
from penstock.documents.contracts import (
    BatchInput,
    BatchRequest,
    ChunkEnvelope,
    DocumentReport,
    DocumentStatus,
    EndDocument,
)
from penstock.documents.identity import BatchIdentity, vo_key
from penstock.errors import AtCapacity, Conflict, InvalidInput

__all__ = ["Batcher", "BatcherCounts", "ChunkRefused", "DocumentEnded", "Flush", "FlushReason", "Output"]

# A report names so many missing chunks at most; the rest is known from their number.
_MISSING_NAMED_MAX: Final = 100


class FlushReason(StrEnum):
    """Why a batch was closed."""

    TOKENS = "tokens"
    ITEMS = "items"
    TIME = "time"
    END = "end"


@dataclass(frozen=True, slots=True)
class Flush:
    """A batch to embed. Sending it twice is the same work: its idempotency key says so."""

    identity: BatchIdentity
    request: BatchRequest
    reason: FlushReason


@dataclass(frozen=True, slots=True)
class DocumentEnded:
    """No more of a document will come; every chunk that was taken is in a batch emitted before this."""

    report: DocumentReport


@dataclass(frozen=True, slots=True)
class ChunkRefused:
    """A chunk that no request may carry: a dead letter. Its document goes on and carries a warning."""

    chunk: PendingChunk
    reason: str


Output: TypeAlias = Flush | DocumentEnded | ChunkRefused


@dataclass(slots=True)
class BatcherCounts:
    """Metrics since this batcher was opened; no decision rests on them."""

    taken: int = 0
    blank: int = 0
    duplicates_seen: int = 0
    duplicates_below: int = 0
    flushes: dict[FlushReason, int] = field(default_factory=lambda: dict.fromkeys(FlushReason, 0))


class Batcher:
    """One key's batcher. Every call returns what must now be done, in order; nothing is done by itself."""

    def __init__(
        self,
        tenant_id: str,
        index_id: str,
        model: str,
        limits: BatcherLimits | None = None,
        *,
        state: BatcherState | None = None,
    ) -> None:
        self.key = vo_key(tenant_id, index_id, model)
        self.counts = BatcherCounts()
        self._tenant_id, self._index_id, self._model = tenant_id, index_id, model
        self._limits = limits or BatcherLimits()
        self._state = state or BatcherState()
        self._ended = Recent(self._state.ended, self._limits.ended_max)
        self._seen = Recent(self._state.seen, self._limits.seen_max)

    @property
    def state(self) -> BatcherState:
        """What to store with what was returned, both or neither: as it is, or as `batcher_state.pack` writes it."""
        self._state.ended, self._state.seen = self._ended.names(), self._seen.names()
        return self._state

    @property
    def timer_ms(self) -> int | None:
        """When `tick` has something to do, or None."""
        limits, state = self._limits, self._state
        timers = [
            document.ended_ms + limits.incomplete_after_ms
            for document in state.documents.values()
            if document.seq_max is not None
        ]
        if state.pending:
            timers.append(state.appended_ms + limits.flush_after_ms)
        return min(timers, default=None)

    def begin(self, doc_id: str) -> None:
        """A document will come, perhaps again: an object that was A, then B, is A once more."""
        self._ended.discard(doc_id)

    def group(self, chunks: Iterable[ChunkEnvelope], ends: Iterable[EndDocument] = (), *, now_ms: int) -> list[Output]:
        """A group of rows in any order: sorted first, so that the order they came in decides nothing."""
        outputs: list[Output] = []
        for chunk in sorted(chunks, key=lambda chunk: (chunk.doc_id, chunk.seq)):
            outputs += self.add(chunk, now_ms=now_ms)
        for end in sorted(ends, key=lambda end: end.doc_id):
            outputs += self.end(end, now_ms=now_ms)
        return outputs

    def add(self, chunk: ChunkEnvelope, *, now_ms: int) -> list[Output]:
        """Take one chunk; `AtCapacity` hands back one that is too far ahead, with nothing changed."""
        self._check_key(chunk)
        document = self._state.documents.get(chunk.doc_id)
        if chunk.doc_id in self._ended or (document and chunk.seq < document.next_seq):
            self._count_duplicate(chunk)
            return []
        if document is None:
            document = DocumentState()
        if chunk.seq > document.next_seq:
            self._hold(chunk, document)
            self._advance(now_ms)
            self._state.documents[chunk.doc_id] = document
            return []
        self._advance(now_ms)
        self._state.documents[chunk.doc_id] = document
        outputs = self._take(PendingChunk.of(chunk), document)
        while waiting := document.gap.pop(document.next_seq, None):
            outputs += self._take(waiting, document)
        return outputs + self._end_if_complete(chunk.doc_id, document)

    def end(self, end: EndDocument, *, now_ms: int) -> list[Output]:
        """A document's last chunk is `seq_max`: flush, or wait for those that are missing."""
        if end.doc_id in self._ended:
            return []
        self._advance(now_ms)
        document = self._state.documents.setdefault(end.doc_id, DocumentState())
        if document.seq_max is None:
            document.seq_max, document.ended_ms = end.seq_max, self._state.clock_ms
            document.warnings += end.warnings
        return self._end_if_complete(end.doc_id, document)

    def tick(self, *, now_ms: int) -> list[Output]:
        """What time alone brings about: a batch that waited, an end that waited in vain."""
        self._advance(now_ms)
        state, limits = self._state, self._limits
        outputs: list[Output] = []
        if state.pending and state.clock_ms >= state.appended_ms + limits.flush_after_ms:
            outputs.append(self._flush(FlushReason.TIME))
        for doc_id in sorted(state.documents):
            document = state.documents[doc_id]
            waited = state.clock_ms - document.ended_ms
            if document.seq_max is not None and waited >= limits.incomplete_after_ms:
                outputs += self._close(doc_id, document)
        return outputs

    def _take(self, chunk: PendingChunk, document: DocumentState) -> list[Output]:
        """The next chunk of its document: into a batch, unless there is nothing in it to embed."""
        document.next_seq += 1
        self._seen.add(chunk.chunk_id)
        self.counts.taken += 1
        if chunk.tokens > self._limits.max_tokens_per_input:
            return [self._refuse(chunk, document)]
        if not chunk.text.strip():
            self.counts.blank += 1
            return []
        document.chunks += 1
        document.tokens += chunk.tokens
        return self._append(chunk)

    def _append(self, chunk: PendingChunk) -> list[Output]:
        state, limits = self._state, self._limits
        outputs: list[Output] = []
        if state.pending and state.pending_tokens + chunk.tokens > limits.max_tokens_per_batch:
            outputs.append(self._flush(FlushReason.TOKENS))
        state.pending.append(chunk)
        state.pending_tokens += chunk.tokens
        state.appended_ms = state.clock_ms
        if len(state.pending) >= limits.max_items_per_batch:
            outputs.append(self._flush(FlushReason.ITEMS))
        return outputs

    def _flush(self, reason: FlushReason) -> Flush:
        state = self._state
        identity = BatchIdentity.of(self.key, state.counter, state.clock_ms, [c.chunk_id for c in state.pending])
        request = BatchRequest(
            batch_id=identity.batch_id,
            tenant_id=self._tenant_id,
            index_id=self._index_id,
            model=self._model,
            inputs=tuple(
                BatchInput(doc_id=c.doc_id, chunk_id=c.chunk_id, seq=c.seq, text=c.text, token_count=c.tokens)
                for c in state.pending
            ),
            tokens_total=state.pending_tokens,
            created_at=datetime.fromtimestamp(state.clock_ms / 1000, UTC),
        )
        state.counter += 1
        state.pending, state.pending_tokens = [], 0
        self.counts.flushes[reason] += 1
        return Flush(identity, request, reason)

    def _end_if_complete(self, doc_id: str, document: DocumentState) -> list[Output]:
        if document.seq_max is None or document.next_seq <= document.seq_max:
            return []
        outputs: list[Output] = [self._flush(FlushReason.END)] if self._state.pending else []
        return outputs + self._close(doc_id, document)

    def _close(self, doc_id: str, document: DocumentState) -> list[Output]:
        """Report and forget. Chunks beyond a gap are not embedded: an incomplete document never becomes current."""
        seq_max = document.seq_max if document.seq_max is not None else -1
        missing = [seq for seq in range(document.next_seq, seq_max + 1) if seq not in document.gap]
        del self._state.documents[doc_id]
        self._ended.add(doc_id)
        status = DocumentStatus.INDEXED if document.chunks else DocumentStatus.EMPTY
        reason = f"{len(missing)} of {seq_max + 1} chunks never came" if missing else None
        report = DocumentReport(
            doc_id=doc_id,
            status=DocumentStatus.INCOMPLETE if missing else status,
            reason=reason,
            chunks=document.chunks,
            tokens=document.tokens,
            warnings=tuple(document.warnings),
            missing_seqs=tuple(missing[:_MISSING_NAMED_MAX]),
        )
        return [DocumentEnded(report)]

    def _refuse(self, chunk: PendingChunk, document: DocumentState) -> ChunkRefused:
        limit = self._limits.max_tokens_per_input
        reason = f"chunk {chunk.seq} has {chunk.tokens} tokens, over the model's {limit}"
        document.warnings.append(reason)
        return ChunkRefused(chunk, reason)

    def _hold(self, chunk: ChunkEnvelope, document: DocumentState) -> None:
        known = document.gap.get(chunk.seq)
        if known and known.chunk_id != chunk.chunk_id:
            raise Conflict(
                f"chunk {chunk.seq} of document {chunk.doc_id[:12]} arrived with two different contents",
                f"{known.chunk_id} and {chunk.chunk_id}",
                "one document was chunked with two configurations: reindex it",
            )
        if not known and self._held() >= self._limits.gap_chunks_max:
            raise AtCapacity(
                f"chunk {chunk.seq} of document {chunk.doc_id[:12]} is too far ahead of the others",
                f"{self._held()} chunks already wait for earlier ones",
                "send the missing chunks first",
                rejected=chunk,
            )
        document.gap[chunk.seq] = PendingChunk.of(chunk)

    def _held(self) -> int:
        return sum(len(document.gap) for document in self._state.documents.values())

    def _advance(self, now_ms: int) -> None:
        # A replayed time may repeat, and a new driver's may be behind: a batcher's own never goes back.
        self._state.clock_ms = max(self._state.clock_ms, now_ms)

    def _count_duplicate(self, chunk: ChunkEnvelope) -> None:
        if chunk.chunk_id in self._seen:
            self.counts.duplicates_seen += 1
        else:
            self.counts.duplicates_below += 1

    def _check_key(self, chunk: ChunkEnvelope) -> None:
        told = chunk.metadata
        if vo_key(told.tenant_id, told.index_id, told.model) != self.key:
            raise InvalidInput(
                f"chunk {chunk.chunk_id[:80]} is not of {self.key}",
                f"it is of {vo_key(told.tenant_id, told.index_id, told.model)}",
            )
