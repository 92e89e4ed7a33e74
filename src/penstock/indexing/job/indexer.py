"""Plans micro-batches and works rounds on the backlog: the driver's part of the indexing job, without its threads.

A plan and the queue's position are one durable write, so that from then on the registry and not the queue remembers
what is to be done. A round is a function of what is durable when it begins: whoever repeats it after a crash reads the
same, and sends the same batches under the same ids. So that the order of plans and rounds is the same too, every write
says how many rounds were worked since the last plan; after a crash those that were due come before the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any, Final

import msgspec

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents import ChunkingConfig, Notification, UploadNotification
from penstock.documents.embedding import EMBEDDED_MODELS
from penstock.errors import InvalidInput, Unavailable
from penstock.indexing.job.background import AHEAD_BYTES_MIN, ReadingAhead, ReadingBeside
from penstock.indexing.job.budget import EmbeddingBudget
from penstock.indexing.job.embedding_requests import EmbeddingRequests
from penstock.indexing.job.memory import ROUND_BYTES_MIN, give_back_memory
from penstock.indexing.job.metadata_telling import MetadataTelling
from penstock.indexing.job.patience import Patience
from penstock.indexing.job.summary import IndexingSummary, JobProgress
from penstock.indexing.job.vector_sources import VectorSources
from penstock.indexing.job.writer import IndexWriter
from penstock.indexing.planning.apart import is_apart, put_aside
from penstock.indexing.planning.backlog import Backlog, Share, remaining_bytes, wakes_ms
from penstock.indexing.planning.events import QueueRecord, decoded, queued_ms, refusal
from penstock.indexing.planning.plan import EventPlan, RoundLimits, plan_events, plan_resumed
from penstock.indexing.registry.entries import BatcherCount, DocumentEntry, Schedule
from penstock.indexing.registry.settings import Build, Cut, IndexSettings, remembered
from penstock.indexing.rounds.answers import Answers, Unanswered
from penstock.indexing.rounds.own_metadata import as_said
from penstock.indexing.rounds.rounds import Batched, Result, batch_round, by_collection, conclude, postponed, scouts
from penstock.indexing.rounds.sharing import left_without
from penstock.indexing.rounds.vector_rows import vector_rows
from penstock.indexing.stages.port import Stages
from penstock.indexing.stages.readings import DocumentReading, ReadRequest
from penstock.observability import SILENT, Observer, names
from penstock.vector import CollectionName

__all__ = ["Indexer", "IndexingSummary"]

# Records decided on in one write: some tens of megabytes where names are long, well below what the store holds.
PLAN_RECORDS_MAX: Final = 5_000
# What a round waits for the document that is read beside it, before others may come first.
_BESIDE_SECONDS: Final = 0.1
NO_BUDGET: Final = EmbeddingBudget()


class Indexer:
    """Called by one thread at a time."""

    def __init__(
        self,
        writer: IndexWriter,
        stages: Stages,
        patience: Patience,
        chunking: ChunkingConfig,
        limits: RoundLimits,
        progress: Callable[[IndexingSummary], None],
        *,
        chunking_by_index: Mapping[tuple[str, str], ChunkingConfig] | None = None,
        batcher: Mapping[str, int] | None = None,
        beside: ReadingBeside | None = None,
        ahead: ReadingAhead | None = None,
        budget: EmbeddingBudget = NO_BUDGET,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
    ) -> None:
        self._batcher = batcher or {}
        self._chunking_by_index = chunking_by_index or {}
        self._writer, self._stages, self._beside, self._ahead = writer, stages, beside, ahead
        self._chunking, self._embedding = chunking, writer.embedding
        self._progress = progress
        self._observer = observer
        self._job_progress = JobProgress(clock=clock, observer=observer)
        self._patience = patience
        self._requests = EmbeddingRequests(stages, writer.embedding.rate, patience, self._job_progress, clock=clock)
        self._telling = MetadataTelling(writer)
        self._opened = False
        self._checked: set[CollectionName] = set()
        self._clock = clock
        # Whether no round can be in doubt: until then nothing may change what it is made of.
        self._settled = False
        # Found asleep by this job, which tries them whatever their pauses: somebody may have repaired what was away.
        self._untried: set[tuple[CollectionName, str]] = set()
        self._rounds_per_batch = limits.rounds_per_batch
        self._schedule = Schedule()
        # What embeds for a collection stays the same as long as the job runs.
        self._source_of = cache(lambda name: writer.embedding.source_of(name.model, _index(name)))
        self._sources = VectorSources(writer, self._source_of, budget)
        self.backlog = Backlog(limits, self._source_of)

    @property
    def summary(self) -> IndexingSummary:
        return self._job_progress.summary

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do now, as far as is known."""
        return self._opened and not self.backlog.ready and not self._wakeable()

    @property
    def due(self) -> bool:
        """Whether a round must be worked before anything new is planned."""
        behind = (self._schedule.rounds < self._rounds_per_batch and not self._waits_beside()) or self.backlog.over
        return self.backlog.overheld or (behind and not self.idle)

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
        changed = {name: plan for name, plan in plans.items() if plan.entries}
        if changed:
            self._writer.write_plans(changed, schedule=self._schedule)
        for name, entries in askable.items():
            for entry in entries:
                self.backlog.put(name, plans[name].entries.get(entry.object_key, entry))
        self._opened = True
        self._untried = {(name, entry.object_key) for name, entry in self.backlog.asleep}
        if len(self.backlog):
            self._job_progress.resumed(len(self.backlog), self.backlog.bytes)
        if self._schedule.spare:
            # It may have been interrupted: once more, before a plan could change what it reads.
            self.round()

    def take(self, records: Sequence[QueueRecord]) -> None:
        """Decide on records of whole batches of the queue that are not decided on yet, and let their documents wait."""
        done = self._writer.position()
        new = [record for record in records if record.sequence > done]
        for start in range(0, len(new), PLAN_RECORDS_MAX):
            part = new[start : start + PLAN_RECORDS_MAX]
            with self._observer.span(names.INDEXING_PLAN, records=len(part)):
                self._plan(part, last=start + PLAN_RECORDS_MAX >= len(new))

    def _plan(self, records: Sequence[QueueRecord], *, last: bool) -> None:
        """Decide, and write that; with the last part the position. What was decided before a crash is decided alike."""
        events, refused = decoded(records, self._routed)
        # From the queue, and so the same in every replay.
        now_ms = queued_ms(records)
        plans: dict[CollectionName, EventPlan] = {}
        turn = self.backlog.next_turn
        known: dict[CollectionName, dict[str, DocumentEntry]] = {}
        for name, queued in events.items():
            named = [each.event for each in queued]
            known[name] = self._writer.entries(name, named)
            plans[name] = plan_events(known[name], named, self._fingerprint(name), turn, now_ms)
            refused += [refusal(queued[place].record, reason) for place, reason in plans[name].refused.items()]
            turn = plans[name].turn
        position = records[-1].sequence if last else None
        schedule = Schedule(position) if plans and position is not None else self._schedule
        updates = {name: self._telling.planned(name, known[name], plan) for name, plan in plans.items() if plan.retold}
        self._writer.write_plans(plans, refused, schedule=schedule, position=position, now_ms=now_ms, updates=updates)
        self._schedule = schedule
        self._job_progress.planned(plans, len(refused))
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
        """Read, batch, embed and write the next part of some documents; nothing when none can be read."""
        if self._settled:
            self._wake()
        shares = self.backlog.round(self._chunking.cell_bytes)
        if self._settled and self._is_read_beside(shares):
            return
        if shares:
            with self._observer.span(names.INDEXING_ROUND, documents=len(shares)):
                read = self._read(shares)
                if read:
                    self._read_ahead([share for share, _ in read])
                    self._round(*zip(*read, strict=True))
        elif self.backlog.overheld:
            self.check_budget()
            self._patience.held(len(self.backlog))
        self._settled = True

    def _read(self, shares: Sequence[Share]) -> list[tuple[Share, DocumentReading]]:
        """What a round reads of those whose buckets answer.

        Documents whose buckets do not are written down as waiting, and the round is shared out anew without them. Going
        on with what was read of the others alone would make batches that no repetition makes: one that begins after a
        crash would fill the places that became free. What was read is kept, and only those in these places are read.
        """
        kept: dict[Any, DocumentReading] = self._ahead.take([share.work for share in shares]) if self._ahead else {}
        while shares:
            kept |= self._read_beside(shares)
            unread = [share for share in shares if share.work not in kept]
            with self._job_progress.stage("read"):
                found = self._stages.read([self._request(share) for share in unread]) if unread else []
            kept |= {share.work: reading for share, reading in zip(unread, found, strict=True)}
            readings = [kept[share.work] for share in shares]
            if not self._postponed(shares, readings):
                return [(as_said(share, kept[share.work]), kept[share.work]) for share in shares]
            kept = {work: reading for work, reading in kept.items() if not reading.away}
            shares = self.backlog.round(self._chunking.cell_bytes)
            # Another round than the one that may have been in doubt, and nothing is written of it yet.
            if self._is_read_beside(shares):
                break
        return []

    def _read_ahead(self, shares: Sequence[Share]) -> None:
        """Begin to read what comes behind a round that is read and not written yet, if all of it ends there."""
        if self._ahead is None or not self._ahead.beside_others:
            return
        busy = {(share.name, share.entry.object_key) for share in shares}
        behind = self.backlog.round(self._chunking.cell_bytes, without=busy)
        if sum(remaining_bytes(share.pending) for share in behind) >= AHEAD_BYTES_MIN and not _is_alone(behind):
            self._ahead.begin({share.work: self._request(share) for share in behind})

    def _is_read_beside(self, shares: Sequence[Share]) -> bool:
        """Whether the round is of a document that is still being read: then it is left for later. What was put aside is
        read meanwhile, and so not waited for; a round in doubt reads for itself, because nothing may come before it.
        """
        beside, apart = self._beside, self.backlog.apart(self._chunking.cell_bytes)
        if beside is None or apart is None:
            return False
        alone = _is_alone(shares)
        if alone or beside.beside_others:
            beside.begin(apart.work, self._request(apart))
        return alone and beside.is_reading(apart.work, _BESIDE_SECONDS)

    def _waits_beside(self) -> bool:
        """Whether nothing is to be done before a document was read beside."""
        apart = self.backlog.apart(self._chunking.cell_bytes) if self._beside is not None and self._settled else None
        if self._beside is None or apart is None or not self._beside.is_reading(apart.work):
            return False
        return _is_alone(self.backlog.round(self._chunking.cell_bytes))

    def _read_beside(self, shares: Sequence[Share]) -> dict[Any, DocumentReading]:
        if self._beside is None:
            return {}
        found = {share.work: self._beside.take(share.work) for share in shares if is_apart(share.pending)}
        return {work: reading for work, reading in found.items() if reading is not None}

    def _request(self, share: Share) -> ReadRequest:
        return share.request(self._chunking.cell_bytes, self._chunking_of(share.name))

    def _round(self, shares: Sequence[Share], readings: Sequence[DocumentReading]) -> None:
        read = list(zip(shares, readings, strict=True))
        with self._job_progress.stage("batch"):
            read_by = by_collection((s.name, (s.entry, reading)) for s, reading in read)
            reused = {name: self._sources.reused(name, named) for name, named in read_by.items()}
            known = {name: frozenset(map(str, table["chunk_id"].to_pylist())) for name, table in reused.items()}
            choice = self._sources.choose(read, known)
            paid = by_collection(
                (s.name, (s.entry, r)) for s, r in read if (s.name, s.pending.doc_id) not in choice.held
            )
            batched = {
                name: self._batched(name, paid.get(name, ()), choice.unsent(name, known[name])) for name in read_by
            }
        self._job_progress.batched(batched)
        if choice.held:
            # Whoever repeats this round after a crash may pay for more of it, and must not use these numbers again.
            self._writer.write_counts({name: self._unworked(one.count) for name, one in batched.items()})
        with self._job_progress.stage("embed"):
            embedded, unanswered = self._embedded(batched)
        self._sources.settle(batched, embedded)
        unanswered += [*left_without(read, choice, embedded, unanswered), *self._sources.unpaid(choice)]
        answers = self._sources.joined(embedded, reused, choice)
        held = {(one.name, document) for one in unanswered for document in one.documents}
        turns = count(self.backlog.next_turn)
        fingerprints = {name: self._fingerprint(name) for name in batched}
        said = self._telling.read(shares, readings)

        def concluded(share: Share, reading: DocumentReading, turn: int) -> Result:
            name, warnings = share.name, said.warnings(share)
            return conclude(share.entry, reading, batched[name], answers[name], fingerprints[name], turn, warnings)

        # Of a document that was not answered for nothing is written: it is read again, and sent under other ids.
        results = [
            (s.name, concluded(s, reading, turn))
            for s, reading, turn in zip(shares, readings, turns, strict=False)
            if (s.name, s.pending.doc_id) not in held
        ]
        waiting = scouts(shares, unanswered, self._clock.now_ms(), self._source_of)
        with self._job_progress.stage("write"):
            results_by = by_collection(results)
            rows = {
                name: vector_rows(results_by.get(name, ()), answers[name], said.rows.get(name, {})) for name in batched
            }
            updates = self._telling.changed(said, results_by)
            # The count with it, also of those that were not answered for: an id that was sent is never used again.
            counts = {name: one.count for name, one in batched.items()}
            large = sum(table.nbytes for table in rows.values()) >= ROUND_BYTES_MIN
            if large:
                # What reading and embedding left behind, before the write takes the most of all.
                give_back_memory()
            self._writer.write_round([*results, *waiting], rows, counts, updates)
        self._schedule = self._schedule.worked()
        self._job_progress.worked(readings, results)
        self._put((name, result.entry) for name, result in [*results, *waiting])
        self._tell_absent(waiting)
        self._show()
        if large:
            give_back_memory()

    def check_budget(self) -> None:
        """`BudgetSpent` when documents wait because this run may spend no more."""
        self._sources.check_budget()

    def _unworked(self, count: BatcherCount) -> BatcherCount:
        return BatcherCount(count.counter, count.clock_ms, self._schedule)

    def _embedded(
        self, batched: Mapping[CollectionName, Batched]
    ) -> tuple[dict[CollectionName, Answers], list[Unanswered]]:
        """The answers of a round. Where there is one source it is waited for; where there are several, none is."""
        if self._has_one_source(batched):
            return self._requests.answers(batched), []
        return self._requests.tried(batched, self.backlog.trials)

    def _has_one_source(self, names: Iterable[CollectionName]) -> bool:
        """Whether nobody else is held back by waiting: two models fail apart, also at one address."""
        made = {
            CollectionName(settings.tenant, settings.index, build.model)
            for settings in self._writer.settings.values()
            for build in settings.builds
        }
        return len({self._source_of(name) for name in made.union(names)}) <= 1

    def _tell_absent(self, waiting: Sequence[tuple[CollectionName, Result]]) -> None:
        """Models that did not answer; and once all do, that they do."""
        for name, result in waiting:
            wait = result.entry.pending and result.entry.pending.wait
            if wait and self._sources.is_spent(name):
                self._observer.event(names.INDEXING_BUDGET, model=name.model, reason=wait.reason)
            elif wait:
                self._patience.absent(name.model, wait.reason, (wait.until_ms - self._clock.now_ms()) / 1000)
        if not any(entry.pending and entry.pending.wait and entry.pending.wait.model for _, entry in self.backlog):
            self._patience.answered()

    def check_models(self) -> None:
        """`Unavailable` when documents wait for a model that does not answer."""
        waits = {name: e.pending.wait for name, e in self.backlog.asleep if e.pending and e.pending.wait}
        for asleep, wait in waits.items():
            if wait.model:
                source = self._source_of(asleep)
                documents = sum(self._source_of(name) == source for name, _ in self.backlog)
                raise Unavailable(
                    f"model {asleep.model} did not embed {documents} documents",
                    wait.reason,
                    "nothing is lost: run it again once the provider answers",
                )

    def _postponed(self, shares: Sequence[Share], readings: Sequence[DocumentReading]) -> bool:
        """Whether buckets did not answer, or documents took too long. Then that is written down."""
        turn = self.backlog.next_turn
        waiting = postponed(shares, readings, self._clock.now_ms(), turn)
        aside = put_aside(shares, readings, turn + len(waiting))
        if not waiting and not aside:
            return False
        self._writer.write_entries([*waiting, *aside])
        self._put([*waiting, *aside])
        for bucket in dict.fromkeys(entry.bucket for _, entry in waiting):
            told = [e.pending.wait for _, e in waiting if e.bucket == bucket and e.pending and e.pending.wait]
            self._observer.event(
                names.INDEXING_POSTPONED, bucket=bucket, documents=len(told), reason=told[0].reason, tries=told[0].tries
            )
        self._show()
        return True

    def _wakeable(self) -> list[tuple[CollectionName, DocumentEntry]]:
        asleep, now_ms = self.backlog.asleep, self._clock.now_ms()
        due = [(name, e) for name, e in asleep if (name, e.object_key) in self._untried or wakes_ms(e) <= now_ms]
        return [(name, e) for name, e in due if not self._sources.is_spent(name)]

    def _wake(self) -> None:
        """Let those be tried again whose time has come, and write that down before a round is made of it."""
        woken = [(name, _awake(entry)) for name, entry in self._wakeable()]
        self._untried.clear()
        if woken:
            self._writer.write_entries(woken)
            self._put(woken)

    def _batched(
        self, name: CollectionName, read: Sequence[tuple[DocumentEntry, DocumentReading]], unsent: frozenset[str]
    ) -> Batched:
        count = self._writer.count(name).scheduled(self._schedule)
        largest = self._chunking_of(name).max_tokens
        limits = self._embedding.profile_of(name.model, _index(name)).batcher_limits(
            self._batcher, chunk_tokens_max=largest
        )
        return batch_round(name, read, count, limits, unsent)

    def _put(self, entries: Iterable[tuple[CollectionName, DocumentEntry]]) -> None:
        """Let documents wait, or be done; texts that nobody waits for any more are removed."""
        before = [self.backlog.put(name, entry) for name, entry in entries]
        parsed = {pending.parsed for pending in before if pending and pending.parsed}
        if parsed:
            # One object may wait in several collections.
            wanted = {entry.pending.parsed for _, entry in self.backlog if entry.pending}
            self._writer.texts.discard(sorted(parsed - wanted))

    def _show(self) -> None:
        self._job_progress.waiting(self.backlog)
        self._progress(self.summary)

    def _fingerprint(self, name: CollectionName) -> str:
        return self._chunking_of(name).fingerprint

    def _chunking_of(self, name: CollectionName) -> ChunkingConfig:
        """As the index was made with; how files are cut into cells is the job's own."""
        settings = self._writer.settings.get((name.tenant, name.index))
        wanted = settings.cut_of(name.model).chunking(self._chunking) if settings else self._chunking
        return self._embedding.chunking_of(name.model, wanted, _index(name))

    def _routed(self, event: Notification) -> list[Notification]:
        """The event for every collection it concerns. The first of an index makes it."""
        settings = self._writer.settings.get((event.tenant_id, event.index_id))
        if settings is None:
            made = self._made_by(event)
            # Refused before anything is written, whoever asks for what is not possible.
            wanted = made.current.cut.chunking(self._chunking)
            self._embedding.chunking_of(event.model, wanted, (event.tenant_id, event.index_id))
            self._check(CollectionName(event.tenant_id, event.index_id, event.model))
            settings = self._writer.make_index(made)
        models = settings.models_for(event.model)
        for model in models:
            self._check(CollectionName(event.tenant_id, event.index_id, model))
        return [msgspec.structs.replace(event, model=model) for model in models]

    def _check(self, name: CollectionName) -> None:
        """Refuse a collection that cannot be written to, while it is still known which record asks for it."""
        if name not in self._checked:
            self._fingerprint(name)
            self._writer.check(name)
            self._checked.add(name)

    def _made_by(self, event: Notification) -> IndexSettings:
        index = (event.tenant_id, event.index_id)
        asked = self._embedding.endpoint_of(event.model, index)
        # The embedded models need none, wherever this job may ask them.
        endpoint = remembered(asked.url) if asked and event.model not in EMBEDDED_MODELS else None
        profile = self._embedding.described(event.model, index)
        build = Build(model=event.model, cut=self._first_cut(event), endpoint=endpoint, profile=profile)
        return IndexSettings(tenant=event.tenant_id, index=event.index_id, current=build)

    def _first_cut(self, event: Notification) -> Cut:
        """As its event wants it; else as whoever runs this job wants that index, or any index."""
        wanted = self._chunking_by_index.get((event.tenant_id, event.index_id), self._chunking)
        asked = event.chunking if isinstance(event, UploadNotification) else None
        if asked is None:
            return Cut.of(wanted)
        return Cut(asked.target_tokens, asked.max_tokens, asked.overlap_tokens, wanted.counter)

    def _can_ask(self, name: CollectionName) -> bool:
        """What waits for a model that this job cannot ask goes on waiting."""
        try:
            self._embedding.profile_of(name.model, _index(name))
        except InvalidInput:
            return False
        return True


def _is_alone(shares: Sequence[Share]) -> bool:
    """Whether a round is of one document that was put aside."""
    return len(shares) == 1 and is_apart(shares[0].pending)


def _index(name: CollectionName) -> tuple[str, str]:
    return name.tenant, name.index


def _awake(entry: DocumentEntry) -> DocumentEntry:
    pending = entry.pending
    assert pending is not None
    assert pending.wait is not None
    wait = msgspec.structs.replace(pending.wait, until_ms=0, whole=False)
    return msgspec.structs.replace(entry, pending=msgspec.structs.replace(pending, wait=wait))
