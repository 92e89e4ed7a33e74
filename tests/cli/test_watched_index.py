"""The shipped commands, watched as an operator watches them: a page for Prometheus, a log, and a collector of traces.

Events with a trace go through `penstock notify`, and `penstock index --follow` takes them, with real Spark and its real
worker processes. Everything that the operating page names is on the page, and what the job does is counted.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_observing import collector, free_port

from penstock.clock import SYSTEM_CLOCK, Deadline
from penstock.observability import names

PENSTOCK = [sys.executable, "-m", "penstock.cli"]
OPERATING = (Path(__file__).parent.parent.parent / "docs" / "operating.md").read_text()
TRACE = "ab" * 16
# A word of every document, which nothing but a document has.
SECRET = "xyzzyplugh"
SECONDS_MAX = 180.0

# Counted by a job that takes two documents and an event that comes twice.
MOVED = (
    "penstock_buffer_fetches_total",
    "penstock_coordinator_flushes_total",
    "penstock_coordinator_writes_total",
    "penstock_indexing_batch_items_count",
    "penstock_indexing_batch_tokens_sum",
    "penstock_indexing_batches_total",
    "penstock_indexing_chunks_total",
    "penstock_indexing_documents_total",
    "penstock_indexing_duplicates_total",
    "penstock_indexing_events_total",
    "penstock_indexing_latency_seconds_count",
    "penstock_indexing_parses_total",
    "penstock_indexing_read_bytes_total",
    "penstock_indexing_read_seconds_count",
    "penstock_indexing_round_seconds_count",
    "penstock_indexing_tokens_total",
    "penstock_keyvalue_durable_seconds_count",
    "penstock_keyvalue_write_bytes_total",
    "penstock_objects_bytes_total",
    "penstock_objects_requests_total",
    "penstock_vector_rows_total",
)
# Of the queue's source, which Spark runs in a process of its own.
ELSEWHERE = ("penstock_buffer_fetches_total",)


def values(page: str) -> dict[str, float]:
    """The sum of the samples of each name."""
    found: dict[str, float] = {}
    for line in page.splitlines():
        if not line.startswith("#"):
            name, value = re.split(r"[{ ]", line)[0], float(line.rsplit(" ", 1)[1])
            found[name] = found.get(name, 0.0) + value
    return found


def scraped(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


async def awaited(port: int, process: subprocess.Popen[str]) -> str:
    """The page, once two documents are searchable."""
    deadline = Deadline(SYSTEM_CLOCK, SECONDS_MAX)
    while process.poll() is None:
        page = scraped(port)
        if values(page).get("penstock_indexing_documents_total", 0) >= 2:
            return page
        deadline.check("the documents were not indexed")
        await SYSTEM_CLOCK.sleep(0.2)
    raise AssertionError(process.communicate())


def event(folder: Path, key: str, **told: Any) -> dict[str, Any]:
    """A CloudEvent of an object in S3, which `--bucket` says is this folder."""
    data = (folder / key).read_bytes()
    thing = {"key": key, "size": len(data), "sequencer": hashlib.sha256(key.encode()).hexdigest()[:16].upper()}
    record = {"bucket": {"name": "docs"}, "object": thing}
    return {
        "specversion": "1.0",
        "id": f"event-{key}",
        "source": "test",
        "type": "com.amazonaws.s3.ObjectCreated:Put",
        "time": "2026-01-01T00:00:00Z",
        "data": {"s3": record},
        **told,
    }


@pytest.mark.integration
def test_an_operator_sees_all_that_the_page_names_and_follows_an_event_to_its_end(tmp_path: Path) -> None:
    folder, store = tmp_path / "documents", tmp_path / "store"
    folder.mkdir()
    (folder / "note.txt").write_text(f"{SECRET} tells of rivers and mills. " * 40)
    (folder / "page.html").write_text(f"<html><body><h1>Mills</h1><p>{SECRET} tells of otters.</p></body></html>")
    parent = f"00-{TRACE}-{'cd' * 8}-01"
    events = [event(folder, "note.txt", traceparent=parent), event(folder, "page.html")]
    batch = tmp_path / "events.json"
    batch.write_text(json.dumps([*events, events[0]]))
    settings = tmp_path / "penstock.toml"
    with ExitStack() as stack:
        traces, bodies = stack.enter_context(collector())
        port = free_port()
        settings.write_text(
            f"[observability]\nmetrics = '127.0.0.1:{port}'\nlog_format = 'json'\nlog_level = 'debug'\n"
        )
        environment = {
            **os.environ,
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{traces}",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            "PENSTOCK_ROUNDS_DOCUMENTS_MAX": "1",
        }
        common = ["--store", str(store), "--config", str(settings)]
        told = subprocess.run(
            [*PENSTOCK, "notify", str(batch), "--source", "cloudevents", *common, "--json"],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        queued = json.loads(told.stdout)["queued"]
        job = subprocess.Popen(
            [*PENSTOCK, "index", "--follow", "--master", "local[2]", "--bucket", f"docs=file://{folder}", *common],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        stack.callback(job.kill)
        page = asyncio.run(awaited(port, job))
        job.send_signal(signal.SIGTERM)
        _, log = job.communicate(timeout=SECONDS_MAX)
    shown = subprocess.run(
        [*PENSTOCK, "documents", "show", "note.txt", "--store", str(store)], capture_output=True, text=True, check=True
    )

    # What the operating page names is on the page, and what the job did has moved.
    for name in names.METRICS:
        assert f"`{name}`" in OPERATING
        assert re.search(rf"^# TYPE {name}(_total)? ", page, re.MULTILINE) or f"# TYPE {name} " in page, name
    moved = values(page)
    assert [name for name in MOVED if name not in ELSEWHERE and not moved.get(name)] == []

    # The names that the sender gave its events.
    assert [each["sourceId"] for each in queued] == ["event-note.txt", "event-page.html", "event-note.txt"]
    assert "event-note.txt" in shown.stdout

    # A line an event, with who and what, and without a word of the text.
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    done = {line["object"]: line for line in lines if line["event"] == "indexing.done"}
    assert done.keys() == {"note.txt", "page.html"}
    assert {"tenantId", "indexId", "docId", "seq", "key", "traceId"} <= done["note.txt"].keys()
    assert (done["note.txt"]["traceId"], done["note.txt"]["sourceId"]) == (TRACE, "event-note.txt")
    assert all(line["batchId"] for line in lines if line["event"] == "indexing.batched")
    assert SECRET not in log + told.stderr + page
    assert not any(SECRET.encode() in body for body in bodies)

    # The trace of the event, from its notification to its end.
    spans = [
        span
        for body in bodies
        for resource in json.loads(body)["resourceSpans"]
        for span in resource["scopeSpans"][0]["spans"]
    ]
    own = {span["name"] for span in spans if span["traceId"] == TRACE}
    assert {"indexing.notify", "indexing.read", "indexing.document"} <= own
    embeds = [span for span in spans if span["name"] == "indexing.embed"]
    assert TRACE in {link["traceId"] for span in embeds for link in span["links"]}
    attributes = [{each["key"] for each in span["attributes"]} for span in embeds]
    assert all({"batchId", "key"} <= named for named in attributes)
