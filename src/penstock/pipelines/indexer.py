"""Plans micro-batches and works rounds on the backlog: the driver's part of the indexing job, without its threads.

A plan and the queue's position are one durable write, so that from then on the registry and not the queue remembers
what is to be done. A round is a function of what is durable when it begins: whoever repeats it after a crash reads the
same, and sends the same batches under the same ids. So that the order of plans and rounds is the same too, every write
says how many rounds were worked since the last plan; after a crash those that were due come before the next one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final

import msgspec
import pyarrow as pa

from penstock.documents import (
    ChunkingConfig,
    DocumentReport,
    DocumentStatus,
    Notification,
    ObjectState,
    decode_notification,
)
from penstock.documents.embedding import EMBEDDED_MODEL
from penstock.errors import InvalidInput
from penstock.pipelines.answers import chunk_name
from penstock.pipelines.backlog import Backlog
from penstock.pipelines.embedding import Embedding
from penstock.pipelines.index_writer import IndexWriter
from penstock.pipelines.indexes import Build, Cut, IndexSettings, remembered
from penstock.pipelines.planning import Plan, RoundLimits, plan_events, plan_resumed
from penstock.pipelines.registry import DocumentEntry, Schedule
from penstock.pipelines.reuse import NOTHING_KNOWN, named_vectors
from penstock.pipelines.rounds import Batched, DocumentReading, batch_round, conclude
from penstock.pipelines.stages import Stages
from penstock.vector import CollectionName

__all__ = ["Indexer", "IndexingSummary"]

# Of entries that no event made.
_ORIGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class IndexingSummary:
    """What a job has done since it was made."""

    documents: int = 0
    chunks: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    # Of the chunks, those whose vectors were there already.
    reused: int = 0
    deleted: int = 0
    unchanged: int = 0
    ignored: int = 0
    refused: int = 0
    # Documents that are planned and not done.
    pending: int = 0
    # (key, status, reason) of documents that did not become searchable.
    set_aside: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, key: str, report: DocumentReport) -> None:
        if report.status in (DocumentStatus.INDEXED, DocumentStatus.EMPTY):
            self.documents += 1
            self.chunks += report.chunks
            self.tokens += report.tokens
            self.cost_usd += report.cost_usd
            self.reused += report.reused
        else:
            self.set_aside.append((key, report.status.value, report.reason or ""))

    def planned(self, plan: Plan) -> None:
        self.deleted += plan.deleted
        self.unchanged += plan.unchanged
        self.ignored += plan.ignored


class Indexer:
    """Called by one thread at a time."""

    def __init__(
        self,
        writer: IndexWriter,
        stages: Stages,
        chunking: ChunkingConfig,
        embedding: Embedding,
        limits: RoundLimits,
        progress: Callable[[IndexingSummary], None],
    ) -> None:
        self._writer, self._stages = writer, stages
        self._chunking, self._embedding = chunking, embedding
        self._progress = progress
        self._opened = False
        self._rounds_per_batch = limits.rounds_per_batch
        self._schedule = Schedule()
        self.backlog = Backlog(limits)
        self.summary = IndexingSummary()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do, as far as is known."""
        return self._opened and not len(self.backlog)

    @property
    def due(self) -> bool:
        """Whether a round must be worked before anything new is planned."""
        return not self.idle and (self._schedule.rounds < self._rounds_per_batch or self.backlog.over)

    def open(self) -> None:
        """Take up what an earlier run left; only the first call does something."""
        if self._opened:
            return
        found = self._writer.pending()
        self._writer.texts.collect(
            e.pending.parsed for es in found.values() for e in es if e.pending and e.pending.parsed
        )
        askable = {name: entries for name, entries in found.items() if self._can_ask(name)}
        plans = {name: plan_resumed(entries, self._fingerprint(name)) for name, entries in askable.items()}
        self._schedule = self._writer.schedule()
        self._writer.write_plans({n: plan for n, plan in plans.items() if plan.entries}, schedule=self._schedule)
        for name, entries in askable.items():
            for entry in entries:
                self.backlog.put(name, plans[name].entries.get(entry.object_key, entry))
        self._opened = True
        if self._schedule.spare:
            # It may have been interrupted: once more, before a plan could change what it reads.
            self.round()

    def take(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Decide on the records of a micro-batch that are not decided on yet, and let their documents wait."""
        done = self._writer.position()
        new = [row for row in rows if row["sequence"] > done]
        if not new:
            return
        events, refused = _decoded(new, self._routed)
        plans: dict[CollectionName, Plan] = {}
        turn = self.backlog.next_turn
        for name, named in events.items():
            plans[name] = plan_events(self._writer.entries(name, named), named, self._fingerprint(name), turn)
            turn = plans[name].turn
        # From the queue, and so the same in every replay.
        now_ms = max(row["ingestion_time_ms"] or 0 for row in new)
        position = new[-1]["sequence"]
        schedule = Schedule(position) if plans else self._schedule
        self._writer.write_plans(plans, refused, schedule=schedule, position=position, now_ms=now_ms)
        self._schedule = schedule
        self.summary.refused += len(refused)
        for plan in plans.values():
            self.summary.planned(plan)
        self._put((name, entry) for name, plan in plans.items() for entry in plan.entries.values())
        self._show()

    def work(self) -> None:
        """One round, whether it is due or there is time for it."""
        if not self.due and not self.idle and not self._schedule.spare:
            name, _ = next(iter(self.backlog))
            schedule = Schedule(self._schedule.position, self._schedule.rounds, spare=True)
            self._writer.write_schedule(name, schedule)
            self._schedule = schedule
        self.round()

    def round(self) -> None:
        """Read, batch, embed and write the next part of some documents; nothing when none waits."""
        shares = self.backlog.round(self._chunking.cell_bytes)
        if not shares:
            return
        readings = self._stages.read(shares, [self._chunking_of(share.name) for share in shares])
        batched: dict[CollectionName, Batched] = {}
        reused: dict[CollectionName, pa.Table] = {}
        for name in dict.fromkeys(share.name for share in shares):
            read = [(s.entry, reading) for s, reading in zip(shares, readings, strict=True) if s.name == name]
            reused[name] = self._reused(name, read)
            batched[name] = self._batched(name, read, reused[name])
        answers = {name: found.joined(reused[name]) for name, found in self._stages.embed(batched).items()}
        turns = count(self.backlog.next_turn)
        results = [
            (s.name, conclude(s.entry, reading, batched[s.name], answers[s.name], self._fingerprint(s.name), turn))
            for s, reading, turn in zip(shares, readings, turns, strict=False)
        ]
        self._writer.write_round(results, {name: one.count for name, one in batched.items()})
        self._schedule = self._schedule.worked()
        self._put((name, result.entry) for name, result in results)
        for _, result in results:
            if result.entry.pending is None and result.entry.report is not None:
                self.summary.add(result.entry.key, result.entry.report)
        self._show()

    def _reused(self, name: CollectionName, read: Sequence[tuple[DocumentEntry, DocumentReading]]) -> pa.Table:
        """Chunks of documents that are searchable already, where the collection has their text and its vector."""
        texts: dict[str, str] = {}
        for entry, reading in read:
            if entry.current is not None and entry.pending is not None:
                texts |= {chunk_name(entry.pending.doc_id, row): row["text"] for row in reading.chunks}
        return named_vectors(self._writer.known_vectors(name, texts.values()), texts) if texts else NOTHING_KNOWN

    def _batched(
        self, name: CollectionName, read: Sequence[tuple[DocumentEntry, DocumentReading]], reused: pa.Table
    ) -> Batched:
        count = self._writer.count(name).scheduled(self._schedule)
        limits = self._embedding.profile_of(name.model).batcher_limits()
        return batch_round(name, read, count, limits, frozenset(map(str, reused["chunk_id"].to_pylist())))

    def _put(self, entries: Iterable[tuple[CollectionName, DocumentEntry]]) -> None:
        """Let documents wait, or be done; texts that nobody waits for any more are removed."""
        before = [self.backlog.put(name, entry) for name, entry in entries]
        parsed = {pending.parsed for pending in before if pending and pending.parsed}
        if parsed:
            # One object may wait in several collections.
            wanted = {entry.pending.parsed for _, entry in self.backlog if entry.pending}
            self._writer.texts.discard(sorted(parsed - wanted))

    def _show(self) -> None:
        self.summary.pending = len(self.backlog)
        self._progress(self.summary)

    def _fingerprint(self, name: CollectionName) -> str:
        return self._chunking_of(name).fingerprint

    def _chunking_of(self, name: CollectionName) -> ChunkingConfig:
        """As the index was made with; how files are cut into cells is the job's own."""
        settings = self._writer.settings.get((name.tenant, name.index))
        wanted = settings.cut_of(name.model).chunking(self._chunking) if settings else self._chunking
        return self._embedding.chunking_of(name.model, wanted)

    def _routed(self, event: Notification) -> list[Notification]:
        """The event for every collection it concerns. The first of an index makes it."""
        settings = self._writer.settings.get((event.tenant_id, event.index_id))
        if settings is None:
            self._embedding.profile_of(event.model)
            settings = self._writer.write_settings(self._made_by(event))
        models = settings.models_for(event.model)
        for model in models:
            self._embedding.profile_of(model)
        return [msgspec.structs.replace(event, model=model) for model in models]

    def _made_by(self, event: Notification) -> IndexSettings:
        asked = self._embedding.endpoint_of(event.model)
        # The embedded model needs none, wherever this job may ask it.
        endpoint = remembered(asked.url) if asked and event.model != EMBEDDED_MODEL else None
        build = Build(model=event.model, cut=Cut.of(self._chunking), endpoint=endpoint)
        return IndexSettings(tenant=event.tenant_id, index=event.index_id, current=build)

    def _can_ask(self, name: CollectionName) -> bool:
        """What waits for a model that this job cannot ask goes on waiting."""
        try:
            self._embedding.profile_of(name.model)
        except InvalidInput:
            return False
        return True


def _decoded(
    rows: Sequence[Mapping[str, Any]], route: Callable[[Notification], list[Notification]]
) -> tuple[dict[CollectionName, list[Notification]], list[DocumentEntry]]:
    """The events by collection, in their order, and an entry for every record that is none."""
    events: dict[CollectionName, list[Notification]] = {}
    refused: list[DocumentEntry] = []
    for row in rows:
        try:
            routed = route(decode_notification(row["record"]))
        except InvalidInput as error:
            refused.append(_refusal(row, error))
            continue
        for event in routed:
            events.setdefault(CollectionName(event.tenant_id, event.index_id, event.model), []).append(event)
    return events, refused


def _refusal(row: Mapping[str, Any], error: InvalidInput) -> DocumentEntry:
    """Keyed by its place in the queue, so that a replay writes the same entry again."""
    place = f"{row['sequence']}/{row['position']}"
    identity = hashlib.sha256(row["record"]).hexdigest()
    report = DocumentReport(doc_id=identity, status=DocumentStatus.QUARANTINED, reason=str(error))
    return DocumentEntry(
        object_key=f"notification:{place}",
        bucket="",
        key=f"notification {place}",
        state=ObjectState(at=_ORIGIN),
        report=report,
    )
