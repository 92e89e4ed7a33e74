"""What every engine's job does between the queue and the store: plan records, work rounds, and end in good order.

An engine brings records in the order of the queue and runs the stages; everything that decides is here, and so is the
same in both. docs/rooms/indexing.md draws it, and tells what each crash leaves behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Closed, Unavailable
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.indexing.job.acknowledging import acknowledge
from penstock.indexing.job.background import ReadingAhead, ReadingBeside
from penstock.indexing.job.config import IndexingConfig
from penstock.indexing.job.indexer import Indexer
from penstock.indexing.job.memory import MemoryKeeper, settle_allocators
from penstock.indexing.job.patience import Patience
from penstock.indexing.job.summary import IndexingSummary
from penstock.indexing.job.turnstile import Turnstile
from penstock.indexing.job.writer import IndexWriter
from penstock.indexing.planning.events import QueueRecord
from penstock.indexing.stages.embedding import Embedding
from penstock.indexing.stages.port import Stages
from penstock.indexing.stages.reading import Reading
from penstock.observability import SILENT, Observer

__all__ = ["JobCore"]

# What a person who has asked for the end waits for a round.
_ROUND_GRACE_SECONDS: Final = 2.0
_CANCEL_AGAIN_SECONDS: Final = 0.5


class JobCore:
    """The store's only writer while it is open. Whoever calls what plans or works is inside the turnstile."""

    def __init__(
        self,
        config: IndexingConfig,
        stages: Callable[[Reading, Embedding], Stages],
        *,
        ahead: Callable[[Reading, Embedding], Stages] | None = None,
        stopped: Callable[[], bool] = lambda: False,
        progress: Callable[[IndexingSummary], None] = lambda _: None,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> None:
        """`ahead` makes the stages that read the next round, where they are others; `stopped` tells whether somebody has stopped the engine; what is not done then stays pending."""
        settle_allocators()
        self._config, self._stopped, self._observer = config, stopped, observer
        self.turnstile = Turnstile()
        self.writer = IndexWriter(
            config.url,
            config.vector_path,
            dict(config.options),
            config.embedding,
            vector=config.vector,
            keyvalue=config.keyvalue,
            observer=observer,
        )
        # With the endpoints that the indexes of this store remember.
        embedding = self.writer.embedding
        reading = self._reading(embedding)
        self.stages, self._beside = stages(reading, embedding), ReadingBeside(stages(reading, embedding))
        self._ahead = ReadingAhead((ahead or stages)(reading, embedding))
        self.patience = Patience(self.turnstile, stopped, embedding.policy, entropy=entropy, observer=observer)
        self._indexer = Indexer(
            self.writer,
            self.stages,
            self.patience,
            config.chunking,
            config.rounds,
            progress,
            chunking_by_index=config.chunking_by_index,
            batcher=config.batcher,
            beside=self._beside,
            ahead=self._ahead,
            budget=config.budget,
            clock=clock,
            observer=observer,
        )
        self._memory = MemoryKeeper()

    @property
    def summary(self) -> IndexingSummary:
        return self._indexer.summary

    @property
    def idle(self) -> bool:
        return self._indexer.idle

    def take(self, groups: Iterable[Sequence[QueueRecord]]) -> None:
        """Plan groups of records, and work the rounds that are due before and behind each; durable when it returns.

        Records come in the order of the queue, and a group is of whole batches.
        """
        self._indexer.open()
        self._work_due()
        for group in groups:
            self._indexer.take(group)
            self._work_due()
        self._check_following()

    def work(self) -> None:
        """One round of what waits."""
        self._indexer.open()
        self._indexer.work()
        self._check_following()

    def _check_following(self) -> None:
        """A job that follows would wait for ever for what it may not pay for."""
        if self.patience.endless:
            self._indexer.check_budget()

    def finish(self) -> None:
        """Work until nothing waits that can be read.

        `BudgetSpent` when the run may spend no more, `Unavailable` when a model kept documents from being embedded.
        """
        self._indexer.open()
        while not self._indexer.idle:
            self.turnstile.pause(0)
            self._indexer.work()
        self.acknowledge()
        self._indexer.check_budget()
        self._indexer.check_models()

    def acknowledge(self) -> None:
        """Take off the queue what the store has, unless a checkpoint is kept: then Spark may still ask for it."""
        if self._config.checkpoint is None:
            # Late is no harm: the next run acknowledges it.
            with suppress(Unavailable):
                config, position = self._config, self.writer.position()
                acknowledge(config.spec, position, config.consumer, observer=self._observer)

    def end_rounds(self) -> None:
        """Let nothing begin, and end what runs. A round that is nearly done is waited for: its vectors are paid for.

        A longer one is given up, and repeated by the next run.
        """
        self.turnstile.close()
        wait = _ROUND_GRACE_SECONDS
        while not self.turnstile.drain(wait):
            # Again and again: a round has several calls, and the next one may just have begun.
            self.stages.cancel()
            self._ahead.cancel()
            wait = _CANCEL_AGAIN_SECONDS
        self._beside.cancel()
        self._ahead.cancel()

    def close(self) -> None:
        self.turnstile.close()
        try:
            self._ahead.close()
        finally:
            self._memory.close()
            self.writer.close()

    def _reading(self, embedding: Embedding) -> Reading:
        config = self._config
        # What is left of an earlier job is read as that could read it.
        remembered = self.writer.remembered_places(config.reading.places)
        places = tuple(dict.fromkeys((*config.reading.places, *remembered)))
        return replace(config.reading, chunking=config.chunking, embedding=embedding, parsed=config.spec, places=places)

    def _work_due(self) -> None:
        """The rounds of a micro-batch, and as many more as bring the backlog below its bounds."""
        while self._indexer.due:
            if self._stopped() or self.turnstile.closed:
                # Raised and not returned: the engine must not take events that are not planned for done.
                raise Closed("the indexing query was stopped", "", "start it again: it continues where it stopped")
            self._indexer.round()
