"""Large documents wait their turn, nobody waits for them, and what waits survives whatever happens to the driver."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.documents import Chunker, DocumentStatus, chunk_id
from penstock.errors import PenstockError
from penstock.indexing.job import indexer
from penstock.indexing.job import writer as index_writer
from penstock.indexing.job.summary import IndexingSummary
from penstock.indexing.planning.plan import RoundLimits
from penstock.testing.following import Following
from penstock.testing.shelf import SMALL_CHUNKS, IndexShelf, prose

# One cell of one kibibyte a round, and the next micro-batch after one round.
SLOW = RoundLimits(cells_max=1, rounds_per_batch=1)
# Only a test that fails waits so long.
PATIENCE_SECONDS = 240.0


class Killed(PenstockError):
    """Stands for the end of the driver: nothing of it goes on."""


class Witness:
    """What a job has said after each of its acts."""

    def __init__(self, killed_after: int | None = None) -> None:
        self.seen: list[tuple[int, int]] = []
        self._killed_after = killed_after

    def __call__(self, summary: IndexingSummary) -> None:
        self.seen.append((summary.documents, summary.pending))
        if len(self.seen) == self._killed_after:
            raise Killed("the driver is gone")


def expected(shelf: IndexShelf, *keys: str) -> list[str]:
    """The ids of the chunks that one undisturbed reading of these documents gives."""
    found = []
    for key in keys:
        document = shelf.entries()[key].current
        assert document is not None
        chunks = Chunker(SMALL_CHUNKS).chunk((shelf.documents / key).read_bytes())
        found += [chunk_id(document, chunk.start, chunk.end) for chunk in chunks]
    return sorted(found)


def test_documents_of_later_events_are_done_before_a_large_one_and_all_is_done_at_the_end(shelf: IndexShelf) -> None:
    shelf.send(shelf.write("large.txt", prose("rivers, bridges and mills", 120)))
    shelf.send(shelf.write("small.txt", "Otters swim in the river."))
    witness = Witness()
    with shelf.job(rounds=SLOW, batches_per_trigger=1, progress=witness) as job:
        summary = job.run_available()
    assert (summary.documents, summary.pending) == (2, 0)
    # The small one, while the large one still waits for most of its rounds.
    assert witness.seen.index((1, 1)) < 6 < len(witness.seen)
    assert shelf.chunks() == expected(shelf, "large.txt", "small.txt")


@pytest.mark.cases(quick=1)
@pytest.mark.parametrize("acts", [1, 3, 7])
def test_what_a_killed_driver_had_planned_is_done_by_the_next_though_the_queue_has_moved_on(
    shelf: IndexShelf, acts: int
) -> None:
    text = prose("rivers, bridges and mills", 120)
    shelf.send(shelf.write("large.txt", text))
    shelf.send(shelf.write("small.txt", "Otters swim in the river."))
    with shelf.job(rounds=SLOW, progress=Witness(killed_after=acts)) as job, pytest.raises(Killed):
        job.run_available()
    # Another checkpoint: what was planned is remembered by the store alone.
    witness = Witness()
    with shelf.job(rounds=SLOW, checkpoint="another", progress=witness) as job:
        summary = job.run_available()
    assert summary.pending == 0
    assert {key: entry.pending for key, entry in shelf.entries().items()} == {"large.txt": None, "small.txt": None}
    assert shelf.chunks() == expected(shelf, "large.txt", "small.txt")
    # What was read before the end is not read again.
    cells = -(-len(text) // SMALL_CHUNKS.cell_bytes)
    assert len(witness.seen) <= cells - acts + 4


@pytest.mark.slow
@pytest.mark.parametrize(("allowed", "most"), [(2, 3), (10_000, 5)])
def test_over_its_bounds_a_job_plans_no_further_until_enough_is_done(
    shelf: IndexShelf, allowed: int, most: int
) -> None:
    """A micro-batch brings one document of several rounds and works one of them, so that more and more would wait."""
    for number in range(5):
        shelf.send(shelf.write(f"{number}.txt", prose(f"rivers of country {number}", 70)))
    limits = RoundLimits(cells_max=1, rounds_per_batch=1, documents_max=1, backlog_documents_max=allowed)
    witness = Witness(killed_after=12)
    with shelf.job(rounds=limits, batches_per_trigger=1, progress=witness) as job, pytest.raises(Killed):
        job.run_available()
    assert max(pending for _, pending in witness.seen) == most
    assert shelf.run().pending == 0
    assert shelf.chunks() == expected(shelf, *(f"{number}.txt" for number in range(5)))


class Bell:
    """Rings when a job has come so far."""

    def __init__(self, documents: int) -> None:
        self._documents = documents
        self._rung = threading.Event()
        self.threads: set[str] = set()

    def __call__(self, summary: IndexingSummary) -> None:
        self.threads.add(threading.current_thread().name)
        if summary.documents >= self._documents and not summary.pending:
            self._rung.set()

    def wait(self) -> None:
        assert self._rung.wait(PATIENCE_SECONDS)


def test_while_the_queue_is_idle_a_job_goes_on_and_new_events_come_before_it(shelf: IndexShelf) -> None:
    shelf.send(shelf.write("large.txt", prose("rivers, bridges and mills", 60)))
    bell = Bell(2)
    with shelf.job(rounds=SLOW, progress=bell) as job, Following(job):
        shelf.send(shelf.write("small.txt", "Otters swim in the river."))
        bell.wait()
    assert shelf.chunks() == expected(shelf, "large.txt", "small.txt")


def test_a_newer_event_takes_the_place_of_what_waits(shelf: IndexShelf) -> None:
    first = shelf.write("note.txt", prose("glaciers in Norway", 60))
    told: list[Any] = []
    bell = Bell(1)

    def replaced(summary: IndexingSummary) -> None:
        if not told:
            told.append(shelf.write("note.txt", prose("deserts in Namibia", 3)))
            shelf.send(*told)
        bell(summary)

    shelf.send(first)
    with shelf.job(rounds=SLOW, progress=replaced) as job, Following(job):
        bell.wait()
    report = shelf.entries()["note.txt"].report
    assert report is not None
    assert report.status is DocumentStatus.INDEXED
    assert shelf.chunks() == expected(shelf, "note.txt")


def test_an_error_between_two_events_ends_a_job_that_follows_by_name(shelf: IndexShelf) -> None:
    shelf.send(shelf.write("large.txt", prose("rivers, bridges and mills", 60)))
    with shelf.job(rounds=SLOW, progress=Witness(killed_after=5)) as job:
        following = Following(job)
        with pytest.raises(Killed, match="the driver is gone"), following:
            following.wait()
    assert shelf.run().pending == 0
    assert shelf.chunks() == expected(shelf, "large.txt")


@pytest.mark.slow
def test_a_job_that_is_stopped_in_the_middle_of_its_rounds_ends_without_an_error(shelf: IndexShelf) -> None:
    begun = threading.Event()
    limits = RoundLimits(cells_max=1, rounds_per_batch=1000)
    shelf.send(shelf.write("large.txt", prose("rivers, bridges and mills", 1000)))
    with shelf.job(rounds=limits, progress=lambda _: begun.set()) as job:
        with Following(job):
            assert begun.wait(PATIENCE_SECONDS)
        assert job.summary.pending == 1
    assert shelf.run().pending == 0
    assert shelf.chunks() == expected(shelf, "large.txt")


def test_a_job_can_be_run_again_after_its_query_has_ended(shelf: IndexShelf) -> None:
    with shelf.job(rounds=SLOW) as job:
        for number in range(2):
            shelf.send(shelf.write(f"{number}.txt", prose(f"rivers of country {number}", 40)))
            assert (job.run_available().documents, job.summary.pending) == (number + 1, 0)
    assert shelf.chunks() == expected(shelf, "0.txt", "1.txt")


@pytest.mark.slow
@pytest.mark.parametrize("acts", [1, 3])
def test_a_plan_that_is_too_much_for_one_write_survives_a_crash_between_two(
    shelf: IndexShelf, monkeypatch: pytest.MonkeyPatch, acts: int
) -> None:
    monkeypatch.setattr(indexer, "PLAN_RECORDS_MAX", 2)
    keys = [f"{number}.txt" for number in range(5)]
    shelf.send(*(shelf.write(key, prose(f"rivers of country {key}", 40)) for key in keys))
    with shelf.job(progress=Witness(killed_after=acts)) as job, pytest.raises(Killed):
        job.run_available()
    # Behind the third of three writes the batch of the queue is planned.
    assert (shelf.position() is None) == (acts < 3)
    assert shelf.run().pending == 0
    assert shelf.chunks() == expected(shelf, *keys)


def test_vectors_that_are_too_much_for_one_write_count_only_with_the_last(
    shelf: IndexShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver ends when all but the last of them are written: hidden, and written once more by the next."""

    def killed(*_: object) -> None:
        raise Killed("the driver is gone")

    monkeypatch.setattr(index_writer, "WRITE_BYTES_MAX", 4_000)
    shelf.send(*(shelf.write(key, prose(f"rivers of country {key}", 40)) for key in ("0.txt", "1.txt")))
    with monkeypatch.context() as patch:
        patch.setattr(index_writer.IndexWriter, "_end", staticmethod(killed))
        with shelf.job() as job, pytest.raises(Killed):
            job.run_available()
    assert shelf.chunks() == []
    assert all(entry.pending is not None for entry in shelf.entries().values())
    summary = shelf.run()
    assert shelf.chunks() == expected(shelf, "0.txt", "1.txt")
    assert summary.chunks == len(shelf.chunks())
