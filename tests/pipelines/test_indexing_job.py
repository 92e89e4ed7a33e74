"""The indexing job where Spark can fail it: workers that are killed, its own threads, checkpoints, bounded memory.

And the promises of `tests/indexing` once more on this engine, one or two of each kind.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.campaigns import IS_LONG
from tests.indexing import (
    priced_model,
    test_budget,
    test_failures,
    test_indexing,
    test_indexing_backlog,
    test_silent_buckets,
    test_tenants,
)
from tests.indexing.desk import DIMENSIONS, PROFILE, SMALL, Desk, prose, served
from tests.objects.bucket_server import BucketServer, bucket_server

from penstock.documents import Chunker, ChunkingConfig, DocumentStatus
from penstock.documents.sources import BLOCK_BYTES
from penstock.errors import PenstockError
from penstock.indexing.job.acknowledging import acknowledge
from penstock.indexing.job.summary import IndexingSummary
from penstock.indexing.planning.plan import RoundLimits
from penstock.objects import StoreSpec
from penstock.observability import names
from penstock.pipelines.indexing.job import SparkIndexingJob
from penstock.testing import RecordingObserver
from penstock.testing.following import Following
from penstock.testing.servers.embedding_server import Ask, EmbeddingServer, ProviderFaults, contents_by_place, vector_of
from penstock.testing.servers.spark_cluster import python_workers
from penstock.testing.shelf import IndexShelf
from penstock.vector import CollectionName

pytestmark = pytest.mark.integration

INDEXED = DocumentStatus.INDEXED
MEBIBYTE = 1 << 20
LINE_BYTES = 512 * MEBIBYTE if IS_LONG else 64 * MEBIBYTE
# A round's text several times over, the model and the libraries; the line itself is far larger in a long campaign.
WORKER_BYTES_MAX = 1024 * MEBIBYTE
# One cell of one kibibyte a round, and the next micro-batch after one round.
SLOW = RoundLimits(cells_max=1, rounds_per_batch=1)


class Crash(Exception):
    """Ends the query where it stands."""


def kill_python_workers() -> int:
    """All that run tasks for the session of this process."""
    killed = 0
    for pid in python_workers(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            killed += 1
    return killed


@pytest.fixture
def server() -> Iterator[BucketServer]:
    with bucket_server() as found:
        yield found


@pytest.fixture
def desk(spark: Any, tmp_path: Path) -> Desk:
    return Desk(spark, tmp_path)


@pytest.fixture
def shelf(spark: Any, tmp_path: Path) -> IndexShelf:
    (tmp_path / "documents").mkdir()
    return IndexShelf(spark, tmp_path)


@pytest.mark.parametrize(
    "promise",
    [
        test_indexing.test_documents_of_several_formats_become_searchable_and_a_poisonous_one_is_set_aside,
        test_indexing.test_updates_replace_deletes_remove_and_duplicates_change_nothing,
        test_indexing.test_an_endpoint_that_is_not_there_ends_the_query_by_name_and_loses_nothing,
        test_indexing_backlog.test_documents_of_later_events_are_done_before_a_large_one_and_all_is_done_at_the_end,
        test_indexing_backlog.test_a_job_that_is_stopped_in_the_middle_of_its_rounds_ends_without_an_error,
        test_indexing_backlog.test_a_job_can_be_run_again_after_its_query_has_ended,
    ],
    ids=lambda promise: promise.__name__,
)
def test_a_promise_of_indexing_holds_on_spark(shelf: IndexShelf, promise: Callable[[IndexShelf], None]) -> None:
    promise(shelf)


def test_tenants_with_the_same_keys_in_the_same_bucket_do_not_mix(desk: Desk) -> None:
    test_tenants.test_tenants_with_the_same_keys_in_the_same_bucket_do_not_mix(desk)


def test_chunks_that_the_model_refuses_keep_their_words_and_cost_a_warning_each(desk: Desk) -> None:
    test_failures.test_chunks_that_the_model_refuses_keep_their_words_and_cost_a_warning_each_and_not_the_document(desk)


@pytest.mark.parametrize(
    "promise",
    [
        test_budget.test_a_budget_in_dollars_is_kept_by_what_the_provider_asks_for,
        test_budget.test_a_job_that_follows_ends_at_its_budget,
    ],
    ids=lambda promise: promise.__name__,
)
def test_a_budget_is_kept_on_spark(shelf: IndexShelf, promise: Callable[[IndexShelf, EmbeddingServer], None]) -> None:
    with EmbeddingServer(dimensions=priced_model.PROFILE.dimensions) as server:
        promise(replace(shelf, name=CollectionName("acme", "handbook", priced_model.MODEL)), server)


# Spark's own threads and files -------------------------------------------------------------------------------


def test_while_the_queue_is_idle_a_worker_goes_on_and_new_events_come_before_it(shelf: IndexShelf) -> None:
    shelf.send(shelf.write("large.txt", prose("rivers, bridges and mills", 60)))
    bell = test_indexing_backlog.Bell(2)
    with shelf.job(rounds=SLOW, progress=bell) as job, Following(job):
        shelf.send(shelf.write("small.txt", "Otters swim in the river."))
        bell.wait()
    assert "penstock-backlog" in bell.threads
    assert shelf.chunks() == test_indexing_backlog.expected(shelf, "large.txt", "small.txt")


def test_an_error_of_the_worker_ends_the_query_by_name(shelf: IndexShelf) -> None:
    shelf.send(shelf.write("large.txt", prose("rivers, bridges and mills", 60)))

    def broken(_: IndexingSummary) -> None:
        if threading.current_thread().name == "penstock-backlog":
            raise test_indexing_backlog.Killed("the worker is gone")

    job = shelf.job(rounds=SLOW, progress=broken)
    assert isinstance(job, SparkIndexingJob)
    with job:
        query = job.start()
        with pytest.raises(test_indexing_backlog.Killed, match="the worker is gone"):
            job.await_end(query)
        assert not query.isActive
    assert shelf.run().pending == 0
    assert shelf.chunks() == test_indexing_backlog.expected(shelf, "large.txt")


def test_a_query_that_is_stopped_ends_while_its_provider_is_away_and_has_asked_for_nothing_more(desk: Desk) -> None:
    """Stopped as whoever holds the query stops it, and not through the job."""
    waiting = threading.Event()
    desk.model = PROFILE.name

    class Onlooker(RecordingObserver):
        def event(self, event: names.Event, **fields: Any) -> None:
            super().event(event, **fields)
            if event is names.INDEXING_OUTAGE:
                waiting.set()

    faults = ProviderFaults(busy=1.0, in_a_row_max=10**6)
    with EmbeddingServer(dimensions=DIMENSIONS, faults=faults) as provider:
        desk.embedding = served(provider.url)
        desk.send(desk.write("note.txt", "Otters swim in the river."))
        checkpoint = desk.folder / "checkpoint"
        config = desk.config(embedding=desk.embedding)
        with SparkIndexingJob(desk.spark, config, observer=Onlooker()) as job:
            query = job.start()
            assert waiting.wait(240)
            assert sorted(path.name for path in (checkpoint / "offsets").glob("[0-9]*")) == ["0"]
            query.stop()
            job.await_end(query)
    with EmbeddingServer(dimensions=DIMENSIONS) as provider:
        assert desk.run(embedding=served(provider.url)).documents == 1


def test_a_job_that_follows_reads_the_document_of_a_silent_bucket_once_that_answers(
    desk: Desk, server: BucketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "test_a_job_that_follows_goes_on_with_the_others_and_reads_the_document_once_its_bucket_answers"
    desk.documents.mkdir()
    server.objects["far.txt"] = (test_silent_buckets.TEXT.encode(), 1)
    getattr(test_silent_buckets, name)(desk, server, monkeypatch)


# The ingestor ------------------------------------------------------------------------------------------------


def test_a_large_text_is_not_read_again_from_before_its_progress(desk: Desk, server: BucketServer) -> None:
    """The reader is killed in the middle of a range, the query dies two rounds later: both go on where they were."""
    desk.server = server
    desk.chunking = ChunkingConfig(target_tokens=6000, max_tokens=8000, overlap_tokens=100)
    text = prose("a river that is long", 7 * MEBIBYTE // 62)
    event = desk.write("large.txt", text)
    kills: list[int] = []
    # After how many ranges the document had come how far.
    marks: list[tuple[int, int]] = []

    def kill(_key: str, start: int, _end: int) -> None:
        if start >= 2 * MEBIBYTE and not kills:
            kills.append(kill_python_workers())

    def mark(_: IndexingSummary) -> None:
        pending = desk.entries()["large.txt"].pending
        if pending is not None:
            marks.append((len(server.ranges), pending.progress.next_byte_start))
            if pending.progress.next_byte_start > 4 * MEBIBYTE and crashes:
                raise crashes.pop()

    server.on_range = kill
    crashes = [Crash()]
    with pytest.raises(PenstockError):
        desk.run(event, rounds=RoundLimits(cells_max=2), progress=mark)
    assert desk.rows() == []
    desk.run(rounds=RoundLimits(cells_max=2), progress=mark)

    assert kills[0] >= 1
    assert not crashes
    assert [row.text for row in desk.rows()] == [chunk.text for chunk in Chunker(desk.chunking).chunk(text.encode())]
    assert len(marks) > 2
    # Reads are whole blocks: of that in which the progress lies, and of the few bytes before it that a cell looks at.
    slack = 2 * BLOCK_BYTES
    for count, reached in marks:
        # The first bytes tell the format, each time.
        later = [(start, end) for _, start, end in server.ranges[count:] if end > 4096]
        assert [span for span in later if span[0] < reached - slack] == [], reached


# The batcher -------------------------------------------------------------------------------------------------


def test_a_flush_that_is_killed_in_its_middle_sends_the_same_batches_again(desk: Desk) -> None:
    text = prose("mills and millers", 150)
    desk.model = PROFILE.name
    seen: list[Ask] = []

    def kill(ask: Ask) -> None:
        seen.append(ask)
        if len(seen) in (4, 9):
            kill_python_workers()

    with EmbeddingServer(dimensions=DIMENSIONS, on_ask=kill) as provider:
        desk.embedding = served(provider.url)
        summary = desk.run(desk.write("mills.txt", text))
        asks = provider.asks
    expected = Chunker(SMALL).chunk(text.encode())
    assert [row.text for row in desk.rows()] == [chunk.text for chunk in expected]
    assert all(np.array_equal(row.vector, vector_of(row.text, DIMENSIONS)) for row in desk.rows())
    assert summary.chunks == len(expected)
    # Some were asked twice, with the same content under the same key; none has two contents.
    assert len(asks) > len({ask.key for ask in asks})
    assert {len(contents) for contents in contents_by_place(asks).values()} == {1}


@pytest.mark.chaos
def test_an_endless_line_without_a_space_is_cut_in_bounded_memory(desk: Desk) -> None:
    """Nowhere to cut, and nothing that the model knows: still every part is looked at, and the report stays short."""
    desk.chunking = ChunkingConfig()
    path = desk.documents / "line.txt"
    path.parent.mkdir()
    with path.open("wb") as file:
        # Sparse would be zeros, which are no text.
        for _ in range(LINE_BYTES // MEBIBYTE):
            file.write(b"x" * MEBIBYTE)
    desk.run(desk.upload("line.txt"), desk.write("good.txt", prose("patience", 3)))
    report = desk.report("line.txt")
    assert report.status is INDEXED
    assert report.chunks >= LINE_BYTES // (8 * desk.chunking.max_tokens)
    assert 0 < len(report.warnings) <= 101
    assert desk.report("good.txt").status is INDEXED
    peak = max(map(peak_bytes, python_workers(os.getpid())))
    assert peak < WORKER_BYTES_MAX, f"{peak >> 20} MiB"


def peak_bytes(pid: int) -> int:
    """The most memory that a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def test_a_job_needs_no_checkpoint_of_a_run_before_it_wherever_the_queue_was_read_meanwhile(
    shelf: IndexShelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    keys = [f"note {number}.txt" for number in range(5)]
    # Runs here and elsewhere, in turn: what one has acknowledged is gone from the queue for the other.
    for key, checkpoint in zip(keys, (None, "elsewhere", None, "elsewhere", None), strict=True):
        assert shelf.run(shelf.write(key, f"Otters of {key} swim in the river."), checkpoint=checkpoint).documents == 1
    assert len(shelf.chunks()) == len(keys)
    assert list(tmp_path.glob(".penstock-*")) == []
    # Nothing is left for the next run to read again.
    assert acknowledge(StoreSpec(shelf.url), 1_000) == 0
