"""The job without Spark takes the queue itself: in bounded steps, acknowledged late, and given up when it is asked to."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from penstock.buffer import (
    ConsumedBatch,
    ConsumerConfig,
    Descriptor,
    MetadataRange,
    SyncConsumer,
    decode_batch,
    encode_batch,
)
from penstock.errors import Closed
from penstock.indexing.job import local
from penstock.indexing.job.core import JobCore
from penstock.indexing.job.indexer import Indexer
from penstock.indexing.job.local import queue_records
from penstock.indexing.job.summary import IndexingSummary
from penstock.indexing.job.turnstile import Turnstile
from penstock.indexing.planning.events import QueueRecord
from penstock.testing.shelf import IndexShelf, prose

PATIENCE_SECONDS = 120.0


def queued(shelf: IndexShelf) -> int:
    """How many batches wait in the queue for whoever takes it next."""
    with SyncConsumer(shelf.url) as consumer:
        return len(consumer.next_descriptors(100))


def test_a_record_has_the_time_of_its_range_and_one_before_the_first_range_has_none() -> None:
    descriptor = Descriptor(9, "where", (MetadataRange(1, 500), MetadataRange(3, 700)))
    batch = ConsumedBatch(descriptor, decode_batch(encode_batch([b"a", b"b", b"c", b"d"])))
    assert queue_records(batch) == [
        QueueRecord(9, 0, b"a", None),
        QueueRecord(9, 1, b"b", 500),
        QueueRecord(9, 2, b"c", 500),
        QueueRecord(9, 3, b"d", 700),
    ]


def test_what_was_planned_is_off_the_queue_and_what_was_not_is_still_there(
    shelf: IndexShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.send(shelf.write("one.txt", "Otters swim in the river."))
    shelf.run()
    assert queued(shelf) == 0

    def broken(*_: object, **__: object) -> None:
        raise MemoryError

    shelf.send(shelf.write("two.txt", "Herons stand in the reeds."))
    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(Indexer, "_plan", broken)
        shelf.run()
    assert queued(shelf) == 1
    assert shelf.run().documents == 1
    assert (queued(shelf), len(shelf.chunks())) == (0, 2)


@pytest.mark.parametrize("bound", [{"batches_per_trigger": 2}, {"bytes_per_trigger": 1}])
def test_the_queue_is_taken_in_steps_of_bounded_size(
    shelf: IndexShelf, monkeypatch: pytest.MonkeyPatch, bound: dict[str, Any]
) -> None:
    taken: list[int] = []
    take = Indexer.take

    def counted(self: Indexer, records: list[QueueRecord]) -> None:
        taken.append(len({record.sequence for record in records}))
        take(self, records)

    monkeypatch.setattr(Indexer, "take", counted)
    for number in range(5):
        shelf.send(shelf.write(f"{number}.txt", f"Note {number} tells of rivers."))
    assert shelf.run(**bound).documents == 5
    assert taken == ([2, 2, 1] if "batches_per_trigger" in bound else [1] * 5)


def test_what_is_planned_next_is_taken_and_the_rest_stays_on_the_queue(
    shelf: IndexShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that no plan takes yet would lie in memory for as long as the rounds before them last."""
    monkeypatch.setattr(local, "PLAN_RECORDS_MAX", 2)
    taken: list[int] = []
    take = JobCore.take

    def counted(self: JobCore, groups: Iterable[Sequence[QueueRecord]]) -> None:
        listed = list(groups)
        taken.append(sum(map(len, listed)))
        take(self, listed)

    monkeypatch.setattr(JobCore, "take", counted)
    for number in range(5):
        shelf.send(shelf.write(f"{number}.txt", f"Note {number} tells of rivers."))
    assert shelf.run().documents == 5
    assert taken == [2, 2, 1]


def test_an_empty_queue_is_looked_at_less_and_less_often_up_to_its_setting_and_soon_again_after_work(
    shelf: IndexShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every look is a request that a bucket charges for, all day."""
    pauses: list[float] = []

    def noted(self: Turnstile, seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 6:
            shelf.send(shelf.write("one.txt", "Otters swim in the river."))
        if len(pauses) == 9:
            self.close()

    monkeypatch.setattr(Turnstile, "pause", noted)
    with shelf.job(consumer=ConsumerConfig(poll_seconds=0.5)) as job:
        job.follow()
    assert pauses == [0.1, 0.2, 0.4, 0.5, 0.5, 0.5, 0.1, 0.2, 0.4]


@pytest.mark.slow
def test_a_job_that_is_interrupted_gives_its_round_up_and_the_next_one_does_it(shelf: IndexShelf) -> None:
    began = threading.Event()
    shelf.send(shelf.write("large.txt", prose("rivers, bridges and mills", 1500)))

    def seen(_: IndexingSummary) -> None:
        began.set()

    with shelf.job(progress=seen) as job:

        def interrupt() -> None:
            assert began.wait(PATIENCE_SECONDS)
            job.interrupt()

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(Closed):
            job.run_available()
        thread.join()
    assert shelf.run().documents == 1
