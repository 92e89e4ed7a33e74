"""A round makes the same batches from the same chunks, and decides what becomes of each document."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pyarrow as pa

from penstock.documents import (
    START,
    BatcherLimits,
    Chunk,
    ChunkingConfig,
    DocumentStatus,
    ObjectState,
    Progress,
    UploadNotification,
    chunk_id,
    doc_id_of,
)
from penstock.indexing.planning.backlog import Share
from penstock.indexing.registry.entries import BatcherCount, DocumentEntry, Pending, Wait
from penstock.indexing.rounds.answers import NO_ANSWERS, Answers
from penstock.indexing.rounds.reuse import text_digest
from penstock.indexing.rounds.rounds import (
    WAIT_MS_FIRST,
    WAIT_MS_MAX,
    Batched,
    Result,
    batch_round,
    bounded,
    conclude,
    postponed,
)
from penstock.indexing.rounds.vector_rows import vector_rows
from penstock.indexing.stages.embedding import UNKNOWN_TEXT
from penstock.indexing.stages.readings import DocumentReading, Ending, Piece, ReadOutcome, gathered
from penstock.vector import CollectionName

NAME = CollectionName("acme", "handbook", "m")
AT = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS = BatcherLimits(max_items_per_batch=2)


def entry(key: str, progress: Progress = START) -> DocumentEntry:
    upload = UploadNotification(
        tenant_id="acme", index_id="handbook", model="m", bucket="b", key=key, etag="e", size_bytes=1, created_at=AT
    )
    document = doc_id_of(upload)
    pending = Pending(
        upload=upload,
        doc_id=document,
        version=f"{document}:2",
        fingerprint="rule",
        progress=progress,
        chunks=progress.next_seq,
    )
    state = ObjectState(at=AT, doc_id=document)
    return DocumentEntry(object_key=key, bucket="b", key=key, state=state, current="before", pending=pending)


def chunk(seq: int) -> Chunk:
    return Chunk(seq, seq * 10, seq * 10, seq * 10 + 10, 3, f"words {seq}")


def reading(outcome: ReadOutcome, *seqs: int) -> DocumentReading:
    chunks = [chunk(seq) for seq in seqs]
    return DocumentReading(chunks, outcome, next_byte_start=len(seqs) * 10, text_bytes=1000)


def answers(batched: Batched, *refused: int) -> Answers:
    """A vector for every chunk of a round, and a reason for those with these numbers."""
    items = [item for request in batched.requests for item in request.inputs]
    return Answers(
        pa.table(
            {
                "chunk_id": [item.chunk_id for item in items],
                "vector": [None if item.seq in refused else [1.0, 0.0] for item in items],
                "cost_usd": [0.5] * len(items),
                "reason": ["too strange" if item.seq in refused else None for item in items],
            }
        )
    )


def concluded(document: DocumentEntry, read: DocumentReading, *refused: int) -> Result:
    batched = batch_round(NAME, [(document, read)], BatcherCount(), LIMITS)
    return conclude(document, read, batched, answers(batched, *refused), "rule", turn=9)


def test_a_replayed_round_makes_the_same_batches_and_the_next_one_counts_on() -> None:
    read = [(entry("a.txt"), reading(ReadOutcome.END, 0, 1, 2)), (entry("b.txt"), reading(ReadOutcome.MORE, 0))]
    count = BatcherCount(0, 1000)
    first = batch_round(NAME, read, count, LIMITS)
    again = batch_round(NAME, read[::-1], count, LIMITS)
    assert first.requests == again.requests
    assert sorted(len(request.inputs) for request in first.requests) == [2, 2]
    later = batch_round(NAME, read[:1], first.count.at(500), LIMITS)
    batches = [request.batch_id for request in [*first.requests, *later.requests]]
    assert len(set(batches)) == len(batches)
    assert later.count.clock_ms >= first.count.clock_ms >= 1000


def test_chunks_that_are_known_are_counted_and_not_sent_and_batches_keep_their_places() -> None:
    document = entry("a.txt")
    read = reading(ReadOutcome.END, 0, 1, 2, 3)
    assert document.pending is not None
    names = [chunk_id(document.pending.doc_id, seq * 10, seq * 10 + 10) for seq in range(4)]
    whole = batch_round(NAME, [(document, read)], BatcherCount(), LIMITS)
    batched = batch_round(NAME, [(document, read)], BatcherCount(), LIMITS, frozenset(names[:3]))
    assert (batched.count, [sent.batch_id for sent in batched.requests]) == (whole.count, [whole.requests[1].batch_id])
    assert [(item.chunk_id, batched.requests[0].tokens_total) for item in batched.requests[0].inputs] == [(names[3], 3)]
    known = pa.table({"chunk_id": names[:3], "vector": pa.array([[0.0, 1.0]] * 3, pa.list_(pa.float64()))})
    found = answers(batched).joined(known)
    result = conclude(document, read, batched, found, "rule", turn=9)
    assert result.entry.report is not None
    assert (result.entry.report.chunks, result.entry.report.reused, result.entry.report.cost_usd) == (4, 3, 0.5)
    assert vector_rows([result], found)["vector"].to_pylist() == [[0.0, 1.0]] * 3 + [[1.0, 0.0]]


def test_the_rows_of_a_round_lie_document_after_document_as_each_was_read() -> None:
    read = [(entry("a.txt"), reading(ReadOutcome.END, 0, 1)), (entry("b.txt"), reading(ReadOutcome.MORE, 0))]
    batched = batch_round(NAME, read, BatcherCount(), LIMITS)
    found = answers(batched)
    results = [conclude(document, one, batched, found, "rule", turn=9) for document, one in read]
    rows = vector_rows(results, found).to_pylist()
    assert [row["id"] for row in rows] == [name for result in results for name in result.chunks]
    assert [row["attributes"] for row in rows] == [
        {
            "bucket": "b",
            "key": key,
            "seq": seq,
            "start": seq * 10,
            "end": seq * 10 + 10,
            "digest": text_digest(f"words {seq}"),
            "lead": len(f"{lead}\n\n"),
            **dict.fromkeys(("title", "headings", "page", "language")),
        }
        for key, seq, lead in (
            ("a.txt", 0, "a\na words 0"),
            ("a.txt", 1, "a\na words 0 words 1"),
            ("b.txt", 0, "b\nb words 0"),
        )
    ]
    assert [row["text"] for row in rows] == [
        "a\na words 0\n\nwords 0",
        "a\na words 0 words 1\n\nwords 1",
        "b\nb words 0\n\nwords 0",
    ]
    assert vector_rows([], NO_ANSWERS).num_rows == 0


def test_chunks_are_numbered_in_the_order_of_the_text_whichever_task_read_them() -> None:
    share = Share(NAME, entry("a.txt", Progress(5, 100)), 2)
    pieces: list[Piece] = [
        (0, Ending(outcome=ReadOutcome.END, next_byte_start=300, text_bytes=300, detail=("second",))),
        (0, chunk(20)),
        (0, chunk(10)),
        (0, Ending(outcome=ReadOutcome.MORE, next_byte_start=200, text_bytes=300, detail=("first",))),
    ]
    (read,) = gathered(pieces, [share.request(1024, ChunkingConfig())])
    assert [(found.seq, found.core_start) for found in read.chunks] == [(5, 100), (6, 200)]
    assert (read.outcome, read.next_byte_start, read.text_bytes) == (ReadOutcome.END, 300, 300)
    assert read.detail == ("first", "second")


def test_a_document_that_ended_becomes_current_with_its_report() -> None:
    document = entry("a.txt", Progress(1, 10))
    result = concluded(document, reading(ReadOutcome.END, 1, 2))
    assert document.pending is not None
    assert (result.flips, result.entry.pending, result.entry.current) == (True, None, document.pending.doc_id)
    assert result.entry.report is not None
    assert (result.entry.report.chunks, result.entry.report.cost_usd) == (3, 1.0)
    assert list(result.chunks) == [
        chunk_id(document.pending.doc_id, 10, 20),
        chunk_id(document.pending.doc_id, 20, 30),
    ]


def test_a_document_with_more_to_read_keeps_its_progress_and_stays_hidden() -> None:
    document = entry("a.txt")
    result = concluded(document, reading(ReadOutcome.MORE, 0, 1))
    assert result.entry.pending is not None
    assert (result.flips, result.entry.current) == (False, "before")
    assert (result.entry.pending.progress, result.entry.pending.chunks) == (Progress(2, 20), 2)
    # It has had its turn, and its size is known now.
    assert (result.entry.pending.turn, result.entry.pending.text_bytes) == (9, 1000)


def test_a_document_that_failed_leaves_the_version_before_it_searchable() -> None:
    document = entry("a.txt")
    pieces: list[Piece] = [(0, chunk(0)), (0, Ending(outcome=ReadOutcome.QUARANTINED, detail=("broken",)))]
    (read,) = gathered(pieces, [Share(NAME, document, 1).request(1024, ChunkingConfig())])
    batched = batch_round(NAME, [(document, read)], BatcherCount(), LIMITS)
    result = conclude(document, read, batched, NO_ANSWERS, "rule", turn=9)
    assert (batched.requests, result.drops, result.flips, result.entry.current) == ([], True, False, "before")
    assert result.entry.report is not None
    assert (result.entry.report.status, result.entry.report.reason) == (DocumentStatus.QUARANTINED, "broken")


def test_a_document_whose_text_cannot_be_had_again_begins_anew_with_nothing_of_what_was_written() -> None:
    document = entry("a.txt", Progress(5, 100))
    asked = Share(NAME, document, 1).request(1024, ChunkingConfig())
    (read,) = gathered([(0, Ending(outcome=ReadOutcome.RESTART))], [asked])
    batched = batch_round(NAME, [(document, read)], BatcherCount(), LIMITS)
    result = conclude(document, read, batched, NO_ANSWERS, "rule", turn=9)
    assert result.entry.pending is not None
    assert (result.drops, result.entry.pending.progress, result.entry.pending.chunks) == (True, Progress(), 0)


def test_a_document_whose_event_names_no_version_goes_on_with_the_one_that_was_read_first() -> None:
    for etag, kept in ((None, "v"), ("e", "e")):
        document = entry("a.txt")
        assert document.pending is not None
        upload = msgspec.structs.replace(document.pending.upload, etag=etag)
        pending = msgspec.structs.replace(document.pending, upload=upload)
        read = reading(ReadOutcome.MORE, 0)
        read.version = "v"
        result = concluded(msgspec.structs.replace(document, pending=pending), read)
        assert result.entry.pending is not None
        assert (result.entry.pending.upload.etag, result.entry.pending.doc_id) == (kept, pending.doc_id)


def test_a_chunk_that_the_model_does_not_take_is_written_with_its_words_and_a_warning() -> None:
    result = concluded(entry("a.txt"), reading(ReadOutcome.END, 0, 1), 0)
    assert result.entry.report is not None
    told = "1 of 2 chunks have no vector: only their words find them"
    assert result.entry.report.warnings == (told, "chunk 0: too strange")
    assert result.entry.report.words_only == 1
    assert [led.chunk.seq for led in result.chunks.values()] == [0, 1]


def test_warnings_are_bounded_and_those_left_out_are_counted_from_round_to_round() -> None:
    few = tuple(f"warning {number}" for number in range(100))
    assert bounded(few) == few
    more = bounded((*few, "one", "two"))
    assert more == (*few, "and 2 further warnings")
    assert bounded((*more, "three")) == (*few, "and 3 further warnings")


def away(key: str, wait: Wait | None = None) -> tuple[Share, DocumentReading]:
    found = entry(key)
    assert found.pending is not None
    waiting = msgspec.structs.replace(found, pending=msgspec.structs.replace(found.pending, wait=wait))
    return Share(NAME, waiting, 1), DocumentReading(outcome=ReadOutcome.AWAY, detail=("no answer",))


def waits(*read: tuple[Share, DocumentReading], now_ms: int = 0) -> dict[str, Wait | None]:
    shares, readings = zip(*read, strict=True)
    found = postponed(shares, readings, now_ms, turn=7)
    return {each.key: each.pending.wait for _, each in found if each.pending}


def test_a_document_whose_bucket_does_not_answer_waits_behind_the_others_and_keeps_its_progress() -> None:
    share = Share(NAME, entry("a", Progress(4, 100)), 1)
    ((_, found),) = postponed(
        [share], [DocumentReading(outcome=ReadOutcome.AWAY, detail=("no answer",))], 1_000, turn=7
    )
    assert found.pending is not None
    assert (found.pending.turn, found.pending.progress) == (7, Progress(4, 100))
    assert found.pending.wait == Wait("no answer", 1, 1_000 + WAIT_MS_FIRST, whole=True)


def test_a_bucket_that_answered_somebody_is_not_silent() -> None:
    found = waits(away("a"), (Share(NAME, entry("b"), 1), reading(ReadOutcome.END, 0)))
    assert found == {"a": Wait("no answer", 1, WAIT_MS_FIRST, whole=False)}


def test_who_was_not_asked_is_as_before_and_comes_first_next_time() -> None:
    unasked = Share(NAME, entry("b"), 1), DocumentReading(outcome=ReadOutcome.UNASKED)
    assert waits(away("a"), unasked) == {"a": Wait("no answer", 1, WAIT_MS_FIRST, whole=True)}


def test_pauses_double_and_have_a_bound() -> None:
    found = waits(away("a", Wait("no answer", 2)), away("b", Wait("no answer", 900)))
    assert [wait and (wait.tries, wait.until_ms) for wait in found.values()] == [
        (3, 4 * WAIT_MS_FIRST),
        (901, WAIT_MS_MAX),
    ]


def test_nobody_waits_when_every_bucket_answered() -> None:
    assert postponed([Share(NAME, entry("b"), 1)], [reading(ReadOutcome.QUARANTINED)], 0, turn=7) == []


def test_a_document_that_is_read_again_no_longer_waits() -> None:
    share, _ = away("a", Wait("no answer", 2))
    read = reading(ReadOutcome.MORE, 0)
    batched = batch_round(NAME, [(share.entry, read)], BatcherCount(), LIMITS)
    done = conclude(share.entry, read, batched, NO_ANSWERS, "rule", 9)
    assert done.entry.pending is not None
    assert done.entry.pending.wait is None


def test_a_version_all_of_whose_chunks_the_model_refused_does_not_take_over() -> None:
    document = entry("a.txt")
    result = concluded(document, reading(ReadOutcome.END, 0, 1), 0, 1)
    assert (result.flips, result.drops, dict(result.chunks)) == (False, True, {})
    assert (result.entry.current, result.entry.pending) == ("before", None)
    report = result.entry.report
    assert report is not None
    assert report.status is DocumentStatus.QUARANTINED
    assert "refused all of its 2 chunks" in str(report.reason)
    assert report.warnings == ("chunk 0: too strange", "chunk 1: too strange")


def test_what_was_lost_is_counted_through_all_rounds_of_a_document() -> None:
    first = concluded(entry("a.txt"), reading(ReadOutcome.MORE, 0, 1), 0, 1)
    assert first.entry.pending is not None
    assert (first.entry.pending.lost, first.entry.pending.words_only) == (2, 2)
    assert not concluded(first.entry, reading(ReadOutcome.END, 2), 2).flips
    done = concluded(first.entry, reading(ReadOutcome.END, 2))
    assert done.flips
    assert done.entry.report is not None
    assert (done.entry.report.chunks, done.entry.report.words_only) == (3, 2)
    assert done.entry.report.warnings[0].startswith("2 of 3 chunks have no vector")


def test_a_text_that_the_model_took_and_knows_nothing_of_is_indexed_by_its_words() -> None:
    document, read = entry("a.txt"), reading(ReadOutcome.END, 0)
    batched = batch_round(NAME, [(document, read)], BatcherCount(), LIMITS)
    unknown = pa.table({"chunk_id": [batched.requests[0].inputs[0].chunk_id], "cost_usd": [0.0], "vector": [None]})
    found = Answers(unknown.append_column("reason", pa.array([UNKNOWN_TEXT])))
    result = conclude(document, read, batched, found, "rule", turn=9)
    assert result.flips
    assert result.entry.report is not None
    assert (result.entry.report.status, result.entry.report.words_only) == (DocumentStatus.INDEXED, 1)
    (row,) = vector_rows([result], found).to_pylist()
    assert (row["vector"], row["text"]) == (None, "a\na words 0\n\nwords 0")
