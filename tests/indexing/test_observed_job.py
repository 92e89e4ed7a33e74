"""Whoever watches a job sees every document, batch and number in it, in the traces of its events; and no text of any."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import generate_latest
from tests.indexing.desk import Desk, prose

from penstock.documents import UploadNotification, decode
from penstock.documents.embedding import EMBEDDED_MODEL
from penstock.indexing.job.port import IndexingJob
from penstock.observability import LiveObserver, names
from penstock.observability.logs import open_log
from penstock.testing import RecordingObserver
from penstock.vector import VectorReader

TRACE = "ab" * 16
PARENT = f"00-{TRACE}-{'cd' * 8}-01"
KEY = f"acme:handbook:{EMBEDDED_MODEL}"
# A word of every document, which nothing but a document has.
SECRET = "xyzzyplugh"
BROKEN = f"<html><body><p>{SECRET}" + "<b>" * 3000


@pytest.fixture
def desk(engine: Any, tmp_path: Path) -> Desk:
    return Desk(engine, tmp_path)


def event(desk: Desk, key: str, content: str | bytes, **told: Any) -> bytes:
    upload = decode(desk.write(key, content), UploadNotification)
    return msgspec.json.encode(msgspec.structs.replace(upload, **told))


def watched(desk: Desk, observer: Any, *events: bytes) -> IndexingJob:
    desk.send(*events)
    with desk.job(desk.config(), observer=observer) as job:
        job.run_available()
    return job


def test_every_number_that_the_pipeline_promises_is_counted(desk: Desk) -> None:
    observer = RecordingObserver()
    good, other = prose("rivers", 40), prose("mills", 3)
    first = event(desk, "a.txt", good)
    watched(desk, observer, first, first, event(desk, "b.txt", other + "\xff" * 3), event(desk, "c.html", BROKEN))
    assert observer.counted(names.INDEXING_READ_BYTES) >= len(good) + len(other)
    assert observer.observed(names.INDEXING_READ_SECONDS)
    assert observer.counted(names.INDEXING_DUPLICATES, what="event") == 1
    batches = observer.counted(names.INDEXING_BATCHES)
    assert batches == len(observer.observed(names.INDEXING_BATCH_TOKENS)) >= 1
    assert observer.counted(names.INDEXING_BATCHES, reason="end") >= 1
    items = observer.observed(names.INDEXING_BATCH_ITEMS)
    assert sum(items) == observer.counted(names.INDEXING_CHUNKS)
    assert sum(observer.observed(names.INDEXING_BATCH_TOKENS)) == observer.counted(names.INDEXING_TOKENS)
    assert observer.counted(names.INDEXING_DOCUMENTS, status="indexed") == 2
    assert observer.counted(names.INDEXING_RESUMES) == 0


def test_warnings_of_documents_are_counted(desk: Desk) -> None:
    observer = RecordingObserver()
    watched(desk, observer, event(desk, "a.txt", prose("rivers", 3).encode() + b"\xff\xfe\xff" + b"mill " * 2000))
    report = desk.report("a.txt")
    assert observer.counted(names.INDEXING_WARNINGS) == len(report.warnings)


def test_documents_that_an_earlier_job_left_are_counted_as_resumed(desk: Desk) -> None:
    observer = RecordingObserver()
    desk.send(event(desk, "a.txt", prose("rivers", 40)), event(desk, "b.txt", prose("mills", 4)))

    class Killed(Exception):
        pass

    def kill(_: Any) -> None:
        raise Killed

    with pytest.raises(Killed):
        desk.run(progress=kill)
    watched(desk, observer, desk.upload("a.txt"))
    assert observer.counted(names.INDEXING_RESUMES) == 2
    assert observer.events(names.INDEXING_RESUMED)[0]["documents"] == 2


def test_a_line_names_tenant_index_document_number_and_batch(desk: Desk) -> None:
    observer = RecordingObserver()
    watched(desk, observer, event(desk, "a.txt", prose("rivers", 40), source_id="upload-7", traceparent=PARENT))
    (planned,) = observer.events(names.INDEXING_PLANNED)
    (done,) = observer.events(names.INDEXING_DONE)
    batched = observer.events(names.INDEXING_BATCHED)
    document, chunks = desk.report("a.txt").doc_id, desk.report("a.txt").chunks
    for line in (planned, *batched, done):
        assert (line["tenantId"], line["indexId"], line["key"]) == ("acme", "handbook", KEY)
        assert line["docId"] == document
    assert (planned["seq"], planned["sourceId"], planned["traceId"]) == (0, "upload-7", TRACE)
    assert (done["seq"], done["sourceId"], done["traceId"]) == (chunks - 1, "upload-7", TRACE)
    assert batched[0]["seq"] == 0
    assert batched[-1]["lastSeq"] == chunks - 1
    assert all(line["batchId"].startswith(f"{KEY}:") for line in batched)


def test_an_event_is_followed_in_its_own_trace_to_the_end(desk: Desk) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    observer = LiveObserver(tracer=provider.get_tracer("test"), log=open_log(io.StringIO()))
    watched(
        desk, observer, event(desk, "a.txt", prose("rivers", 9), traceparent=PARENT), event(desk, "b.txt", "other text")
    )
    spans = exporter.get_finished_spans()
    own = [span for span in spans if format(span.context.trace_id, "032x") == TRACE]
    assert {span.name for span in own} == {"indexing.read", "indexing.document"}
    for span in own:
        assert span.attributes is not None
        assert (span.attributes["docId"], span.attributes["key"]) == (desk.report("a.txt").doc_id, KEY)
        assert span.parent is not None
        assert format(span.parent.span_id, "016x") == "cd" * 8
    embeds = [span for span in spans if span.name == "indexing.embed"]
    links = [format(link.context.trace_id, "032x") for span in embeds for link in span.links]
    assert set(links) == {TRACE}
    assert all(span.attributes and span.attributes["batchId"] for span in embeds)


def test_no_text_of_a_document_is_in_a_log_a_trace_or_a_metric(desk: Desk) -> None:
    """At the most talkative level, with documents that are read, broken and refused."""
    log, exporter = io.StringIO(), InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    observer = LiveObserver(tracer=provider.get_tracer("test"), log=open_log(log, form="json", level="debug"))
    text = f"{SECRET} " + prose(SECRET, 20)
    watched(
        desk,
        observer,
        event(desk, "a.txt", text),
        event(desk, "b.html", BROKEN),
        event(desk, "c.pdf", f"%PDF-1.7 {SECRET}"),
        event(desk, "d.docx", b"PK\x03\x04" + SECRET.encode() * 50),
        event(desk, "e.txt", text.encode("utf-16")),
    )
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert {"indexing.planned", "indexing.batched", "indexing.done", "indexing.set_aside"} <= {
        line["event"] for line in lines
    }
    assert SECRET not in log.getvalue()
    assert SECRET not in generate_latest(observer.registry).decode()
    for span in exporter.get_finished_spans():
        assert SECRET not in span.to_json()


def test_what_a_sender_calls_its_event_reaches_every_row_and_the_registry(desk: Desk) -> None:
    watched(
        desk,
        RecordingObserver(),
        event(desk, "a.txt", prose("rivers", 9), source_id="upload-7"),
        event(desk, "b.txt", prose("mills", 2)),
    )

    async def read(reader: VectorReader) -> list[tuple[str, str | None]]:
        collection = await reader.collection("acme", "handbook", desk.model)
        pages = [page async for page in collection.scan(columns=["attributes"])]
        found = [row["attributes"] for page in pages for row in page.to_pylist()]
        return [(row["key"], row.get("sourceId")) for row in found]

    rows = set(desk._ask(read))
    assert rows == {("a.txt", "upload-7"), ("b.txt", None)}
    upload = desk.entries()["a.txt"].upload
    assert upload is not None
    assert upload.source_id == "upload-7"
