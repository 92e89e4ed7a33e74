"""The indexing job in one process, without Spark: the queue is taken by a consumer, and rounds run where it is called.

It plans, numbers and writes as the Spark engine does, on the same stores: either may go on where the other was. A batch
of the queue is acknowledged once its plan is durable.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Final, Self

from penstock.buffer import ConsumedBatch, SyncConsumer
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Closed
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.indexing.job.config import IndexingConfig
from penstock.indexing.job.core import JobCore
from penstock.indexing.job.indexer import PLAN_RECORDS_MAX
from penstock.indexing.job.summary import IndexingSummary
from penstock.indexing.job.writer import IndexWriter
from penstock.indexing.planning.events import QueueRecord, plan_groups
from penstock.indexing.stages.local import LocalStages, LocalStagesBeside
from penstock.observability import SILENT, Observer

__all__ = ["LocalIndexingJob"]

# The pause before the queue is looked at again when nothing is to be done. It doubles up to the consumer's
# `poll_seconds`: each look is a request that a bucket charges for.
_LOOK_SECONDS: Final = 0.1


class LocalIndexingJob:
    """An `IndexingJob` in this process. Close it, or use it as a context manager."""

    def __init__(
        self,
        config: IndexingConfig,
        *,
        progress: Callable[[IndexingSummary], None] = lambda _: None,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> None:
        self._config, self._observer = config, observer
        stages, ahead = (partial(kind, observer=observer) for kind in (LocalStages, LocalStagesBeside))
        self._core = JobCore(
            config, stages, ahead=ahead, progress=progress, clock=clock, entropy=entropy, observer=observer
        )

    @property
    def writer(self) -> IndexWriter:
        return self._core.writer

    @property
    def summary(self) -> IndexingSummary:
        return self._core.summary

    def run_available(self) -> IndexingSummary:
        core = self._core
        core.patience.endless = False
        with self._consumer() as consumer, core.turnstile.batch():
            while self._taken(consumer):
                core.turnstile.pause(0)
        with core.turnstile.batch():
            core.finish()
        return self.summary

    def follow(self) -> None:
        self._core.patience.endless = True
        try:
            with self._consumer() as consumer:
                idle_looks = 0
                while True:
                    idle_looks = 0 if self._worked_once(consumer) else idle_looks + 1
                    if idle_looks:
                        self._core.turnstile.pause(self._pause_seconds(idle_looks))
        except Closed:
            if not self._core.turnstile.closed:
                raise

    def interrupt(self) -> None:
        self._core.end_rounds()

    def close(self) -> None:
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _consumer(self) -> SyncConsumer:
        return SyncConsumer(self._config.spec, self._config.consumer, observer=self._observer)

    def _worked_once(self, consumer: SyncConsumer) -> bool:
        """Take what the queue has, or else work on what was taken; False when there is neither."""
        core = self._core
        with core.turnstile.batch():
            if self._taken(consumer):
                return True
            if core.idle:
                return False
            core.work()
            return True

    def _pause_seconds(self, idle_looks: int) -> float:
        longest = self._config.consumer.poll_seconds
        return min(longest, _LOOK_SECONDS * 2.0 ** min(idle_looks - 1, 20))

    def _taken(self, consumer: SyncConsumer) -> bool:
        """Plan what the queue has next, within the bounds of a micro-batch; False when there is nothing."""
        batches = self._next_batches(consumer)
        if not batches:
            return False
        records = [record for batch in batches for record in queue_records(batch)]
        groups = plan_groups([record.sequence for record in records], PLAN_RECORDS_MAX)
        self._core.take(records[group.start : group.stop] for group in groups)
        consumer.ack_through(batches[-1].sequence)
        return True

    def _next_batches(self, consumer: SyncConsumer) -> list[ConsumedBatch]:
        """Within the bounds of a micro-batch, and no more than is planned next: the rest would lie in memory meanwhile."""
        found: list[ConsumedBatch] = []
        size = records = 0
        bounds = self._config
        while (
            len(found) < bounds.batches_per_trigger and size < bounds.bytes_per_trigger and records < PLAN_RECORDS_MAX
        ):
            batch = consumer.next_batch()
            if batch is None:
                break
            found.append(batch)
            size += sum(map(len, batch.records))
            records += len(batch.records)
        return found


def queue_records(batch: ConsumedBatch) -> list[QueueRecord]:
    """The records of a batch; one before its first range of metadata has no time."""
    starts = [found.start_index for found in batch.metadata]
    times = [None, *(found.ingestion_time_ms for found in batch.metadata)]
    return [
        QueueRecord(batch.sequence, position, bytes(record), times[bisect_right(starts, position)])
        for position, record in enumerate(batch.records)
    ]
