"""The telemetry job without Spark: batches of the queue into data files and series, each exactly once in both.

```
queue ─▶ next round ─▶ stage: fetch, decode, partition, write files ─▶ state ─▶ catalog + position  ┐
  ▲                    (this process, or Spark's executors)                 └▶ series  + position  ┴▶ acknowledge
```
A round that dies anywhere is done again: files have the same names, and each store knows by its own position whether it
has the round. A batch leaves the queue when both have it. docs/rooms/landing.md tells what each crash leaves behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.buffer import Consumer, DeadLetterPolicy, DeadLetters, Descriptor, key_of
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Corrupt, NotFound, Unsupported
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.landing.config import TelemetryConfig
from penstock.landing.deltas import DeltaTotals
from penstock.landing.port import LandingAnswer, LandingSamples, LandingStage, LandingTask
from penstock.landing.rounds import Landed, Round, bytes_for, next_round, shared_out
from penstock.landing.sink import LandingSink
from penstock.landing.state import LandingState, StateShelf
from penstock.landing.tables import merge_known
from penstock.objects import ObjectStore
from penstock.observability import SILENT, Observer, names
from penstock.relay import RelayMarks, RelayStamp
from penstock.telemetry import DeltaPolicy

__all__ = ["Lander", "LandingSummary", "first_of"]


@dataclass(slots=True)
class LandingSummary:
    """What a job has done since it was opened."""

    rounds: int = 0
    batches: int = 0
    repeats: int = 0
    set_aside: int = 0
    rows: int = 0
    files: int = 0
    file_bytes: int = 0
    samples: int = 0
    quarantined: int = 0
    refused: dict[str, int] = field(default_factory=dict)


class Lander:
    """Made by `open`. Belongs to one event loop. One lander a queue or shard: opening it fences the one before."""

    def __init__(
        self,
        config: TelemetryConfig,
        stage: LandingStage,
        store: ObjectStore,
        sink: LandingSink,
        consumer: Consumer,
        landed: Landed,
        state: LandingState,
        summary: LandingSummary,
        clock: Clock,
        observer: Observer,
    ) -> None:
        self._config, self._stage, self._store, self._sink = config, stage, store, sink
        self._consumer, self._landed, self._state = consumer, landed, state
        self._clock, self._observer = clock, observer
        self._shelf = StateShelf(store, config.source)
        self._waiting: list[Descriptor] = []
        # What a round may take: less than configured after one that unpacked to very many rows.
        self._bytes_per_round = config.limits.bytes_per_round
        self.summary = summary

    @classmethod
    async def open(
        cls,
        config: TelemetryConfig,
        stage: LandingStage,
        others: Sequence[str] = (),
        *,
        summary: LandingSummary | None = None,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> Lander:
        """Take the queue and both stores over, and find out how far they are.

        `others` are the sources of other shards, whose tables a new one knows; `summary` may be shared by all of them.
        """
        store = await config.spec.open(probe=True, clock=clock, observer=observer)
        try:
            sink = await LandingSink.open(config, store, clock, observer)
            try:
                landed = await sink.landed()
                state = await _state_at(store, config.source, landed.both, others)
                acked = landed.both if landed.both >= 0 else None
                consumer = Consumer(store, config.consumer, acked, clock=clock, entropy=entropy, observer=observer)
                await consumer.start()
            except BaseException:
                await sink.close()
                raise
        except BaseException:
            await store.close()
            raise
        counted = LandingSummary() if summary is None else summary
        return cls(config, stage, store, sink, consumer, landed, state, counted, clock, observer)

    async def close(self) -> None:
        """Write what is acknowledged, and release the stores."""
        try:
            await self._consumer.close()
        finally:
            try:
                await self._sink.close()
            finally:
                await self._store.close()

    @property
    def position(self) -> int:
        """The last sequence that both stores have; -1 before the first."""
        return self._landed.both

    async def run_available(self, stopped: Callable[[], bool] = lambda: False) -> LandingSummary:
        """Work until nothing waits."""
        while not stopped() and await self.step():
            pass
        return self.summary

    async def follow(
        self,
        stopped: Callable[[], bool],
        wake: asyncio.Event,
        gate: AbstractAsyncContextManager[Any] | None = None,
    ) -> LandingSummary:
        """Work as batches come, no round sooner than `interval_seconds` after the one before, each within `gate`."""
        while not stopped():
            began = self._clock.monotonic()
            async with gate or nullcontext():
                if stopped():
                    break
                await self.step()
            pause = self._config.limits.interval_seconds - (self._clock.monotonic() - began)
            if pause > 0 and not stopped():
                await first_of(wake.wait(), self._clock.sleep(pause))
        return self.summary

    async def step(self) -> bool:
        """One round; False when nothing waits."""
        sizes = await self._look_ahead()
        await self._pass_gap()
        limits = replace(self._config.limits, bytes_per_round=self._bytes_per_round)
        found = next_round(self._waiting, sizes, self._landed, limits)
        if found is None:
            return False
        began = self._clock.monotonic()
        taken = sizes[: len(found.descriptors)]
        rows = await self._work(found, taken)
        # No more than twice the round before: batches of one kind come together.
        allowed = bytes_for(self._config.limits, sum(taken), rows)
        self._bytes_per_round = min(allowed, max(1, self._bytes_per_round) * 2)
        del self._waiting[: len(found.descriptors)]
        self._observer.observe(names.LANDING_ROUND_SECONDS, self._clock.monotonic() - began)
        return True

    async def _look_ahead(self) -> list[int]:
        """Read descriptors up to the bound of a round, and ask for the sizes of their objects."""
        most = self._config.limits.batches_per_round
        while len(self._waiting) < most and (more := await self._consumer.next_descriptors(most - len(self._waiting))):
            self._waiting += more
        return list(await asyncio.gather(*(self._size(one) for one in self._waiting[:most])))

    async def _pass_gap(self) -> None:
        """A store that came later, or lost its position, cannot have what left the queue before: it goes on from here."""
        boundary = self._landed.boundary()
        if boundary is None or not self._waiting or self._waiting[0].sequence <= boundary:
            return
        self._observer.event(names.LANDING_GAP, since=self._landed.both, until=self._waiting[0].sequence - 1)
        ahead = max(self._landed.files, self._landed.samples)
        self._state = await self._shelf.read(ahead)
        self._landed = Landed(ahead, ahead, ahead)

    async def _size(self, descriptor: Descriptor) -> int:
        try:
            return (await self._store.head(key_of(descriptor.location, self._store.url))).size
        except (NotFound, Corrupt):
            # Its task will say so, by name.
            return 0

    # One round --------------------------------------------------------------------------------------------------

    async def _work(self, found: Round, sizes: Sequence[int]) -> int:
        """Land one round; the number of its rows."""
        marks = RelayMarks(self._state.marks)
        fresh = [(one, size) for one, size in zip(found.descriptors, sizes, strict=True) if _is_fresh(one, marks)]
        known = self._state.known
        answers = await self._landed_by_stage(found, fresh, known) if fresh else []
        await self._set_aside(found, answers)
        tables = [(tenant, table, columns) for (tenant, table), columns in sorted(known.items())]
        totals = DeltaTotals(self._state.totals)
        samples = [self._added_up(totals, one) for answer in answers for one in answer.samples]
        state = LandingState(found.last, marks.state, tables, totals.state)
        await self._shelf.write(state)
        refused = await self._sink.commit(
            [file for answer in answers for file in answer.files],
            samples,
            found.last,
            writes_files=found.writes_files,
            writes_samples=found.writes_samples,
        )
        self._state = state
        self._landed = _moved(self._landed, found)
        await self._consumer.ack_through(found.last)
        await self._shelf.remove_before(self._landed.both)
        self._tell(found, len(found.descriptors) - len(fresh), answers, refused)
        return sum(answer.rows for answer in answers)

    async def _landed_by_stage(
        self, found: Round, fresh: list[tuple[Descriptor, int]], known: dict[tuple[str, str], dict[str, str]]
    ) -> list[LandingAnswer]:
        """Answers of all tasks. Two tasks that give one column two types are worked on one after the other."""
        parts = shared_out([size for _, size in fresh], self._config.limits.bytes_per_task)
        tasks = [
            LandingTask(
                part,
                self._config.source,
                found.first,
                found.last,
                tuple(fresh[place][0] for place in places),
                found.writes_files,
                # Totals go on also in rounds whose samples the series have.
                bool(self._config.series_path)
                and (found.writes_samples or self._config.mapping.delta is DeltaPolicy.ACCUMULATE),
                {key: dict(columns) for key, columns in known.items()},
            )
            for part, places in enumerate(parts)
        ]
        answers = await asyncio.to_thread(self._stage.land, tasks)
        for place, answer in enumerate(answers):
            if not merge_known(known, answer.tables):
                again = replace(tasks[place], known={key: dict(columns) for key, columns in known.items()})
                (answers[place],) = await asyncio.to_thread(self._stage.land, [again])
                merge_known(known, answers[place].tables)
        return answers

    def _added_up(self, totals: DeltaTotals, samples: LandingSamples) -> LandingSamples:
        found, dropped = totals.added_up(samples)
        if dropped:
            self._observer.count(names.LANDING_REFUSED_POINTS, dropped, reason="too many series of deltas")
        return found

    async def _set_aside(self, found: Round, answers: Sequence[LandingAnswer]) -> None:
        """Unreadable batches become dead letters, or stop the job, as the queue's policy says."""
        lost = {one.sequence: one for answer in answers for one in answer.lost}
        if not lost:
            return
        if self._config.consumer.dead_letter is DeadLetterPolicy.HALT:
            raise lost[min(lost)].error()
        letters = DeadLetters(self._store, self._config.consumer.data_path_prefix)
        for descriptor in found.descriptors:
            if descriptor.sequence in lost:
                error = lost[descriptor.sequence].error()
                await letters.record(descriptor, error, self._clock.now_ms())
                self._observer.event(names.LANDING_SET_ASIDE, sequence=descriptor.sequence, why=str(error))

    def _tell(self, found: Round, repeats: int, answers: Sequence[LandingAnswer], refused: Mapping[str, int]) -> None:
        summary, count = self.summary, self._observer.count
        files = [file for answer in answers for file in answer.files]
        samples = sum(len(one.value) for answer in answers for one in answer.samples) - sum(refused.values())
        rows = sum(file.rows for file in files)
        lost = sum(len(answer.lost) for answer in answers)
        summary.rounds += 1
        summary.batches += len(found.descriptors)
        summary.repeats += repeats
        summary.set_aside += lost
        summary.rows += rows
        summary.files += len(files)
        summary.file_bytes += sum(file.size for file in files)
        summary.samples += samples
        count(names.LANDING_BATCHES, len(found.descriptors) - repeats - lost, outcome="landed")
        count(names.LANDING_BATCHES, repeats, outcome="repeated")
        count(names.LANDING_BATCHES, lost, outcome="set-aside")
        count(names.LANDING_ROWS, rows)
        count(names.LANDING_FILES, len(files))
        count(names.LANDING_FILE_BYTES, sum(file.size for file in files))
        count(names.LANDING_SAMPLES, samples)
        self._observer.gauge(names.LANDING_POSITION, self._landed.both, shard=str(self._config.shard))
        for reasons in (refused, *(answer.refused for answer in answers)):
            for reason, points in reasons.items():
                summary.refused[reason] = summary.refused.get(reason, 0) + points
                count(names.LANDING_REFUSED_POINTS, points, reason=reason)
        for answer in answers:
            for reason, number in answer.quarantined.items():
                summary.quarantined += number
                count(names.LANDING_QUARANTINED_ROWS, number)
                self._observer.event(names.LANDING_QUARANTINED, rows=number, why=reason)


async def _state_at(store: ObjectStore, source: str, position: int, others: Sequence[str]) -> LandingState:
    """Of a source that begins: what the others know of the columns of tables."""
    if position >= 0:
        return await StateShelf(store, source).read(position)
    known: dict[tuple[str, str], dict[str, str]] = {}
    for other in others:
        state = await StateShelf(store, other).newest()
        for key, columns in state.known.items():
            known[key] = {**columns, **known.get(key, {})}
    return LandingState(tables=[(tenant, table, columns) for (tenant, table), columns in sorted(known.items())])


def _moved(landed: Landed, done: Round) -> Landed:
    files = max(landed.files, done.last)
    return Landed(files, max(landed.files_begun, files), max(landed.samples, done.last))


def _is_fresh(descriptor: Descriptor, marks: RelayMarks) -> bool:
    """Whether this is not a segment that a relay sent before; if so it counts as landed from now on."""
    if not descriptor.metadata:
        return True
    try:
        stamp = RelayStamp.decode(bytes(descriptor.metadata[0].payload))
    except (Unsupported, ValueError):
        return True
    return stamp is None or marks.admit(stamp)


async def first_of(*waits: Any) -> None:
    """Until one of them is over; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
