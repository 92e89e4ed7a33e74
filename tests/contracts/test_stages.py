"""What the two heavy stages of a round promise, whichever engine runs them: in this process, and on Spark."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pytest
from tests.objects.bucket_server import bucket_server

from penstock.documents import (
    BatchInput,
    BatchRequest,
    Chunk,
    Chunker,
    ChunkingConfig,
    Progress,
    UploadNotification,
    chunk_id,
    doc_id_of,
)
from penstock.documents.embedding import EMBEDDED_MODEL, DispatchPolicy, ModelProfile, StaticProvider
from penstock.errors import Closed
from penstock.indexing.stages import local
from penstock.indexing.stages.embedding import Embedding
from penstock.indexing.stages.local import LocalStages, LocalStagesBeside
from penstock.indexing.stages.port import Stages
from penstock.indexing.stages.reading import Reading
from penstock.indexing.stages.readings import ReadOutcome, ReadRequest
from penstock.indexing.stages.wire import ANSWER_SCHEMA
from penstock.objects import RetryPolicy, StoreSpec
from penstock.observability import SILENT, Observer, names
from penstock.testing import RecordingObserver
from penstock.testing.servers.embedding_server import Ask, EmbeddingServer, ProviderFaults

Open: TypeAlias = Callable[..., Stages]

CHUNKING = ChunkingConfig(target_tokens=60, max_tokens=90, overlap_tokens=10, cell_bytes=1024)
TEXT = "\n\n".join(f"Paragraph {number} tells of rivers and mills, 川と水車." for number in range(150)).encode()
PAGE = b"<html><body>" + b"".join(b"<p>Paragraph %d tells of mills.</p>" % number for number in range(200))
PROFILE = ModelProfile(name="m", tokens_per_request=100, items_per_request=8, tokens_per_input=50, dimensions=8)


@pytest.fixture(
    params=[
        "local",
        pytest.param("beside", marks=pytest.mark.processes),
        pytest.param("spark", marks=pytest.mark.integration),
    ]
)
def stages(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens the stages of an engine, which may read below the folder of the test."""
    made: list[Stages] = []

    def opened(embedding: Embedding | None = None, observer: Observer = SILENT, **reading: Any) -> Stages:
        places = (f"file://{tmp_path}",)
        read = Reading(CHUNKING, places=places, parsed=StoreSpec(f"file://{tmp_path}/store"))
        read = replace(read, **reading)
        if request.param == "spark":
            from penstock.pipelines.indexing.stages import SparkStages

            return SparkStages(request.getfixturevalue("spark"), read, embedding or Embedding(), observer=observer)
        kind = LocalStages if request.param == "local" else LocalStagesBeside
        made.append(kind(read, embedding or Embedding(), observer=observer))
        return made[-1]

    monkeypatch.setattr(local, "_PROCESS_BYTES_MIN", 0)
    monkeypatch.setattr(local, "_cores", lambda: 2)
    yield opened
    for each in made:
        each.close()


def asked(folder: Path, key: str, content: bytes | None, **known: Any) -> ReadRequest:
    """A request for all of a file, as its notification tells of it; None for one that is not there."""
    if content is not None:
        (folder / key).write_bytes(content)
    upload = UploadNotification(
        tenant_id="acme",
        index_id="handbook",
        model=EMBEDDED_MODEL,
        bucket=f"file://{folder}",
        key=key,
        size_bytes=len(content or b""),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return msgspec.structs.replace(
        ReadRequest(
            upload=upload,
            progress=Progress(),
            first_cell=0,
            cells=100,
            chunking=CHUNKING,
            bytes_left=max(1, len(content or b"")),
        ),
        **known,
    )


def batch(counter: int, *texts: str, model: str = EMBEDDED_MODEL) -> BatchRequest:
    document = hashlib.sha256(b"document").hexdigest()
    inputs = [
        BatchInput(doc_id=document, chunk_id=chunk_id(document, counter, seq), seq=seq, text=text, token_count=2)
        for seq, text in enumerate(texts)
    ]
    return BatchRequest(
        batch_id=f"acme:handbook:{model}:{counter}:0",
        tenant_id="acme",
        index_id="handbook",
        model=model,
        inputs=tuple(inputs),
        tokens_total=2 * len(inputs),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


# Reading -----------------------------------------------------------------------------------------------------


def test_what_is_read_is_what_one_reading_of_the_bytes_gives_and_asking_again_gives_it_again(
    stages: Open, tmp_path: Path
) -> None:
    engine = stages()
    request = asked(tmp_path, "note.txt", TEXT)
    (whole,) = engine.read([request])
    assert whole.chunks == Chunker(CHUNKING).chunk(TEXT)
    assert (whole.outcome, whole.next_byte_start, whole.text_bytes) == (ReadOutcome.END, len(TEXT), len(TEXT))
    assert engine.read([request]) == [whole]


@pytest.mark.parametrize("cells", [1, 3])
def test_rounds_of_any_size_give_the_chunks_of_one_and_number_them_on(stages: Open, tmp_path: Path, cells: int) -> None:
    engine = stages()
    request = asked(tmp_path, "note.txt", TEXT, cells=cells)
    chunks: list[Chunk] = []
    for _ in range(100):
        (part,) = engine.read([request])
        chunks += part.chunks
        if part.outcome is ReadOutcome.END:
            break
        progress = Progress(len(chunks), part.next_byte_start)
        first = part.next_byte_start // CHUNKING.cell_bytes
        request = msgspec.structs.replace(request, progress=progress, first_cell=first, text_bytes=part.text_bytes)
    assert chunks == Chunker(CHUNKING).chunk(TEXT)


def test_answers_lie_in_the_order_of_the_requests_and_a_bad_document_is_an_outcome_of_its_own(
    stages: Open, tmp_path: Path
) -> None:
    requests = [
        asked(tmp_path, "a.txt", b"Otters swim."),
        asked(tmp_path, "missing.txt", None),
        asked(tmp_path, "broken.pdf", b"%PDF-1.4 this is none"),
        asked(tmp_path, "empty.txt", b""),
        asked(tmp_path, "b.txt", b"Herons stand."),
    ]
    found = stages().read(requests)
    assert [reading.outcome for reading in found] == [
        ReadOutcome.END,
        ReadOutcome.QUARANTINED,
        ReadOutcome.QUARANTINED,
        ReadOutcome.END,
        ReadOutcome.END,
    ]
    assert [[chunk.text for chunk in reading.chunks] for reading in found] == [
        ["Otters swim."],
        [],
        [],
        [],
        ["Herons stand."],
    ]
    assert all(reading.detail for reading in found[1:3])


def test_a_side_car_gives_what_it_says_and_a_page_its_title(stages: Open, tmp_path: Path) -> None:
    requests = [
        asked(tmp_path, "a.txt.meta.json", b'{"team": "sales", "": 1}'),
        asked(tmp_path, "b.txt.meta.json", b"[1]"),
        asked(tmp_path, "c.html", b"<html><head><title>Mills</title></head><body><p>They turn.</p></body></html>"),
    ]
    said, broken, page = stages().read(requests)
    assert (said.outcome, said.metadata, said.chunks) == (ReadOutcome.END, '{"team":"sales"}', [])
    assert "a name is not empty" in said.detail[0]
    assert (broken.outcome, broken.metadata) == (ReadOutcome.QUARANTINED, None)
    assert (page.outcome, page.title, page.metadata) == (ReadOutcome.END, "Mills", None)


def test_nothing_is_made_of_nothing(stages: Open) -> None:
    engine = stages()
    assert engine.read([]) == []
    reply = engine.embed({})
    assert (reply.answered.num_rows, dict(reply.away), reply.retries) == (0, {}, 0)


def test_an_object_that_is_not_what_was_notified_is_superseded(stages: Open, tmp_path: Path) -> None:
    request = asked(tmp_path, "note.txt", TEXT)
    upload = msgspec.structs.replace(request.upload, etag="older")
    (found,) = stages().read([msgspec.structs.replace(request, upload=upload)])
    assert (found.outcome, found.chunks) == (ReadOutcome.SUPERSEDED, [])


def test_a_folder_that_nobody_named_is_not_read(stages: Open, tmp_path: Path) -> None:
    (found,) = stages(places=()).read([asked(tmp_path, "note.txt", TEXT)])
    assert (found.outcome, found.chunks) == (ReadOutcome.QUARANTINED, [])
    assert "may not be read" in found.detail[0]


def test_a_bucket_that_does_not_answer_holds_back_nobody_elses_documents(stages: Open, tmp_path: Path) -> None:
    with bucket_server() as server:
        server.is_away = True
        options = {**server.s3_options, "retry": RetryPolicy(deadline_seconds=0.2)}
        far = asked(tmp_path, "far.txt", None)
        far = msgspec.structs.replace(far, upload=msgspec.structs.replace(far.upload, bucket="bucket", etag="e"))
        silent, near = stages(options=options).read([far, asked(tmp_path, "near.txt", b"Otters swim.")])
    assert silent.away
    assert (near.outcome, [chunk.text for chunk in near.chunks]) == (ReadOutcome.END, ["Otters swim."])


def test_a_parsed_text_that_is_too_large_for_a_round_is_parsed_once_and_read_on_from_where_it_was_put(
    stages: Open, tmp_path: Path
) -> None:
    engine = stages()
    request = asked(tmp_path, "page.html", PAGE, cells=2)
    (first,) = engine.read([request])
    assert (first.outcome, first.parses) == (ReadOutcome.MORE, 1)
    assert first.parsed is not None
    text = (tmp_path / "store" / first.parsed).read_bytes()
    later = msgspec.structs.replace(
        request,
        progress=Progress(len(first.chunks), first.next_byte_start),
        first_cell=first.next_byte_start // CHUNKING.cell_bytes,
        cells=100,
        text_bytes=first.text_bytes,
        parsed=first.parsed,
    )
    (rest,) = engine.read([later])
    assert (rest.outcome, rest.parses) == (ReadOutcome.END, 0)
    assert [*first.chunks, *rest.chunks] == Chunker(CHUNKING).chunk(text)


# Embedding ---------------------------------------------------------------------------------------------------


def test_every_chunk_gets_its_vector_or_a_reason_under_the_number_of_its_request(stages: Open) -> None:
    requests = {3: batch(0, "otters", "rivers"), 7: batch(1, "   ")}
    reply = stages().embed(requests)
    assert (reply.answered.schema, dict(reply.away), reply.retries) == (ANSWER_SCHEMA, {}, 0)
    rows = {row["chunk_id"]: row for row in reply.answered.to_pylist() if row["chunk_id"] is not None}
    assert {name: row["request"] for name, row in rows.items()} == {
        item.chunk_id: number for number, request in requests.items() for item in request.inputs
    }
    first, second = (rows[item.chunk_id]["vector"] for item in requests[3].inputs)
    assert np.allclose([first, second], StaticProvider().embed_now(["otters", "rivers"]).rows)
    blank = rows[requests[7].inputs[0].chunk_id]
    assert (blank["vector"], blank["reason"]) == (None, "it is empty")


def test_a_provider_that_stays_away_is_told_with_its_requests_and_the_others_are_answered(stages: Open) -> None:
    requests = {number: batch(number, f"text {number}", model="m") for number in range(12)}
    with EmbeddingServer(dimensions=8, faults=ProviderFaults(busy=0.5, in_a_row_max=100, seed=3)) as server:
        remote = Embedding(server.url, profile=PROFILE, policy=DispatchPolicy(attempts_max=1))
        reply = stages(remote).embed(requests)
    answered = {row["request"] for row in reply.answered.to_pylist() if row["chunk_id"] is not None}
    assert reply.away
    assert answered
    assert (answered | set(reply.away), answered & set(reply.away)) == (set(requests), set())


def test_a_model_on_trial_is_asked_for_a_word_and_for_nothing_else_while_it_does_not_answer(stages: Open) -> None:
    with EmbeddingServer(dimensions=8, faults=ProviderFaults(busy=1.0, in_a_row_max=10**6)) as server:
        remote = Embedding(server.url, profile=PROFILE, policy=DispatchPolicy(attempts_max=1))
        reply = stages(remote).embed(
            {0: batch(0, "otters", model="m")}, brisk=True, trials=frozenset({remote.source_of("m")})
        )
        places = {ask.place for ask in server.asks}
    assert list(reply.away) == [0]
    assert places == {"m/trial/probe"}


def test_a_call_that_is_given_up_from_another_thread_raises_and_the_next_one_is_answered(stages: Open) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hold(_: Ask) -> None:
        begun.set()
        go_on.wait(120)

    with EmbeddingServer(dimensions=8, on_ask=hold) as server:
        engine = stages(Embedding(server.url, profile=PROFILE))

        def give_up() -> None:
            assert begun.wait(120)
            engine.cancel()
            go_on.set()

        thread = threading.Thread(target=give_up)
        thread.start()
        with pytest.raises(Closed):
            for number in range(1000):
                engine.embed({number: batch(number, "otters", model="m")})
        thread.join()
        assert not engine.embed({0: batch(0, "rivers", model="m")}).away


def test_giving_up_while_nothing_runs_does_nothing(stages: Open) -> None:
    engine = stages()
    engine.cancel()
    assert not engine.embed({0: batch(0, "otters")}).away


TRACE = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"


def test_what_a_stage_reads_is_counted_and_traced_where_the_job_is(stages: Open, tmp_path: Path) -> None:
    """Whichever process read it: bytes, times, requests, chunks that were had before, and a span a document."""
    observer = RecordingObserver()
    plain, page = asked(tmp_path, "a.txt", TEXT), asked(tmp_path, "b.html", PAGE)
    traced = msgspec.structs.replace(plain.upload, traceparent=TRACE, source_id="s")
    whole = stages().read([plain])[0]
    begun = Progress(next_seq=3, next_byte_start=whole.chunks[3].core_start)
    stages(observer=observer).read([msgspec.structs.replace(plain, upload=traced, progress=begun), page])
    read = observer.counted(names.INDEXING_READ_BYTES)
    assert read >= len(TEXT) + len(PAGE)
    assert observer.counted(names.OBJECTS_BYTES, direction="read") == read
    assert observer.counted(names.OBJECTS_REQUESTS, outcome="ok") >= 2
    seconds = observer.observed(names.INDEXING_READ_SECONDS)
    assert len(seconds) >= 2
    assert min(seconds) > 0
    assert observer.counted(names.INDEXING_DUPLICATES, what="chunk") == 3
    spans = {span["docId"]: span for span in observer.spans(names.INDEXING_READ)}
    first = spans[doc_id_of(plain.upload)]
    assert first == {
        "docId": doc_id_of(plain.upload),
        "key": f"acme:handbook:{EMBEDDED_MODEL}",
        "seq": 3,
        "chunks": len(whole.chunks) - 3,
        "outcome": "end",
        "parent": TRACE,
    }
    assert len(spans) == 2
    assert spans[doc_id_of(page.upload)].get("parent") is None


def test_a_batch_is_traced_with_links_to_what_it_was_made_of(stages: Open) -> None:
    observer = RecordingObserver()
    requests = {
        place: msgspec.structs.replace(batch(place, "a mill"), traceparents=(TRACE,) * place) for place in range(2)
    }
    stages(observer=observer).embed(requests)
    spans = {span["batchId"]: span for span in observer.spans(names.INDEXING_EMBED)}
    assert spans.keys() == {requests[0].batch_id, requests[1].batch_id}
    linked = spans[requests[1].batch_id]
    assert (linked["links"], linked["items"], linked["answered"]) == ([TRACE], 1, True)
    assert linked["key"] == f"acme:handbook:{EMBEDDED_MODEL}"
    assert "links" not in spans[requests[0].batch_id]


def test_nobody_who_watches_changes_what_is_answered(stages: Open, tmp_path: Path) -> None:
    request = asked(tmp_path, "a.txt", TEXT)
    assert stages().read([request]) == stages(observer=RecordingObserver()).read([request])
    batches = {0: batch(0, "a mill", "a river")}
    watched, silent = (stages(observer=each).embed(batches) for each in (RecordingObserver(), SILENT))
    assert watched.answered.schema == silent.answered.schema
    assert watched.answered.to_pylist() == silent.answered.to_pylist()
