"""The pages of the dashboard over real rooms: a queue with a dead letter, an edge, a catalog, coordinators."""

import asyncio
import os
import signal
import subprocess
import sys

from penstock.buffer import (
    DeadLetters,
    Producer,
    ProducerConfig,
    ShardLayout,
    change_routing,
    queued_now,
    shard_config,
)
from penstock.catalog import Catalog, DataFile
from penstock.cli.serving.house_view import EventBoard, FigureHistory, KeptCatalog, QueueView
from penstock.cli.serving.house_view.catalog_page import catalog_sections
from penstock.cli.serving.house_view.cost_page import cost_sections
from penstock.cli.serving.house_view.edge_page import edge_sections
from penstock.cli.serving.house_view.jobs_page import job_sections
from penstock.cli.serving.house_view.path import PathStages
from penstock.cli.serving.house_view.queue_page import queue_sections
from penstock.cli.serving.house_view.stores_page import store_sections
from penstock.cli.serving.supervisor import ChildStatus
from penstock.cli.settings.job_figures import registry_figures
from penstock.errors import Corrupt, NotFound, Unavailable
from penstock.gateway import StageState, Viewer
from penstock.objects import MemoryStore
from penstock.observability import LiveObserver, names
from penstock.quiver import Bundle, Quiver, QuiverConfig
from penstock.testing import ManualClock

ADMIN = Viewer("default", is_admin=True)
HOUR_NS = 3_600_000_000_000


def history(observer=None):
    found = FigureHistory(lambda: {"telemetry": registry_figures(observer.registry)} if observer else {}, ManualClock())
    found.sample()
    return found


def facts(section):
    return {fact.name: fact.value for fact in section.facts}


def test_a_queue_shows_what_waits_and_what_was_set_aside():
    async def session():
        store = MemoryStore()
        async with Producer(store) as producer:
            for record in (b"a", b"b"):
                await (await producer.produce([record])).durable()
        queue = QueueView("Queue", store, "ingest/manifest", "ingest")
        assert [facts(section)["waiting"] for section in await queue_sections(queue)] == ["2 batches"]
        manifest = await queued_now(store, "ingest/manifest")
        await DeadLetters(store, "ingest").record(manifest.after(None, 1)[0], Corrupt("it is torn"), 0)
        queue.looks.forget()
        waiting, letters = await queue_sections(queue)
        assert facts(waiting)["dead letters"] == "1"
        assert "it is torn" in letters.table.rows[0][3]
        stage = await PathStages(history(), EventBoard(), ADMIN).queue(queue, "Telemetry")
        assert stage.state in (StageState.ATTENTION, StageState.LATE)

    asyncio.run(session())


def test_a_queue_of_several_shards_is_one_stage_and_a_section_each():
    async def session():
        store = MemoryStore()
        await change_routing(store, ShardLayout(shards=2))
        for shard in (0, 1):
            async with Producer(store, shard_config(ProducerConfig(), shard)) as producer:
                await (await producer.produce([b"a"])).durable()
        queue = QueueView("Queue", store, "ingest/manifest", "ingest", is_sharded=True)
        found = await queue_sections(queue)
        assert [section.title for section in found] == ["Queue, shard 0", "Queue, shard 1"]
        assert [facts(section)["waiting"] for section in found] == ["1 batch", "1 batch"]
        stage = await PathStages(history(), EventBoard(), ADMIN).queue(queue, "Telemetry")
        assert {fact.name: fact.value for fact in stage.facts}["waiting"] == "2 batches"

    asyncio.run(session())


def test_a_queue_that_cannot_be_read_is_down_and_only_an_administrator_is_told_why():
    class Away(MemoryStore):
        async def get(self, *_args, **_given):
            raise Unavailable("the bucket s3://secret does not answer", "it is down")

    async def session():
        queue = QueueView("Queue", Away(), "ingest/manifest", "ingest")
        (section,) = await queue_sections(queue)
        assert "does not answer" in section.error
        told = {
            admin: await PathStages(history(), EventBoard(), Viewer("a", is_admin=admin)).queue(queue, "Telemetry")
            for admin in (True, False)
        }
        assert told[True].state is told[False].state is StageState.DOWN
        assert "secret" in told[True].error
        assert "secret" not in told[False].error
        assert told[False].error

    asyncio.run(session())


def test_the_edge_shows_its_subscribers_caps_and_segments(tmp_path):
    import pyarrow as pa

    async def session():
        async with await Quiver.open(tmp_path / "edge", QuiverConfig()) as edge:
            await edge.register("queue")
            await edge.ingest(Bundle({"logs": pa.record_batch({"body": ["a"]})}, signal="logs"))
            await edge.flush()
            subscribers, caps, segments = edge_sections(edge)
            assert subscribers.table.rows[0][:3] == ("queue", "active", "1")
            assert "backpressure" in facts(caps)["at the cap"]
            assert segments.table.rows[0][1:3] == ("logs", "1")
            stage = PathStages(history(), EventBoard(), ADMIN).edge(edge)
            assert stage.state is StageState.OK

    asyncio.run(session())
    assert "No store at the edge" in edge_sections(None)[0].table.empty


def test_rows_that_the_edge_has_lost_are_told_as_lost(tmp_path):
    async def session():
        observer = LiveObserver()
        observer.count(names.QUIVER_ROWS_LOST, 12, reason="dropped")
        async with await Quiver.open(tmp_path / "edge", QuiverConfig()) as edge:
            return PathStages(history(observer), EventBoard(), ADMIN).edge(edge)

    stage = asyncio.run(session())
    assert (stage.state, stage.lost) == (StageState.LOST, "12 rows")


def test_a_token_file_that_cannot_be_used_is_shown_at_the_gateway():
    observer = LiveObserver()
    for refused, state in ((1, StageState.ATTENTION), (0, StageState.IDLE)):
        observer.gauge(names.GATEWAY_TOKENS_REFUSED, refused)
        for takes_rows in (True, False):
            stage = PathStages(history(observer), EventBoard(), ADMIN).gateway(takes_rows=takes_rows)
            assert (stage.state, "token file" in facts(stage)) == (state, bool(refused))


def test_the_catalog_shows_files_by_level_and_hour_and_who_merges_them():
    clock = ManualClock()
    now_ns = clock.now_ms() * 1_000_000

    async def session():
        catalog = await Catalog.open(MemoryStore(), "lake", clock=clock)
        files = [
            DataFile(
                path=f"metrics/{number}.parquet",
                min_timestamp=now_ns - number * HOUR_NS,
                max_timestamp=now_ns - number * HOUR_NS + 1,
                row_count=10,
                size_bytes=1024,
                level=number % 2,
                table="metrics",
            )
            for number in range(4)
        ]
        await catalog.register(files)
        await catalog.lease([files[0].path], "compactor")

        async def opened():
            return catalog

        shards, levels, hours, _merges, leases = await catalog_sections(KeptCatalog(opened), history(), clock)
        assert shards.table.rows[0][:4] == ("root", "2", "4", "40")
        assert levels.table.rows == [("metrics", "0", "2", "20", "2.0 KiB"), ("metrics", "1", "2", "20", "2.0 KiB")]
        assert [row[1:5] for row in hours.table.rows] == [("1", "0", "0", "0"), ("0", "1", "0", "0")] * 2
        assert leases.table.rows[0][1:3] == ("compactor", "1")

    asyncio.run(session())


def test_a_catalog_of_many_tables_shows_some_of_them_and_says_how_many_more_there_are():
    clock = ManualClock()
    now_ns = clock.now_ms() * 1_000_000

    async def session():
        catalog = await Catalog.open(MemoryStore(), "lake", clock=clock)
        files = [
            DataFile(
                path=f"{number}.parquet",
                min_timestamp=now_ns,
                max_timestamp=now_ns + 1,
                row_count=10,
                size_bytes=1024,
                table=f"table_{number:04}",
            )
            for number in range(1_234)
        ]
        await catalog.register(files)
        for number in range(60):
            await catalog.lease([files[number].path], f"compactor {number}")

        async def opened():
            return catalog

        _, levels, _, _, leases = await catalog_sections(KeptCatalog(opened), history(), clock)
        assert len(levels.table.rows) == 201
        assert levels.table.rows[-1][0] == "… and 1,034 more"
        assert len({len(row) for row in levels.table.rows}) == 1
        assert len(leases.table.rows) == 51
        assert leases.table.rows[-1][0] == "… and 10 more"

    asyncio.run(session())


def test_a_catalog_that_is_not_there_yet_says_so():
    async def missing():
        raise NotFound("there is no catalog")

    for kept in (None, KeptCatalog(missing)):
        (section,) = asyncio.run(catalog_sections(kept, history()))
        assert section.table.empty


def test_stores_show_epochs_and_why_they_flush():
    observer = LiveObserver()
    for mark, epoch in (("durable", 5), ("applied", 7), ("flushed", 6)):
        observer.gauge(names.COORDINATOR_EPOCH, epoch, coordinator="vector", mark=mark)
    observer.count(names.COORDINATOR_FLUSHES, 3, coordinator="vector", reason="size")
    seen, vector = store_sections(history(observer), [("vectors", "sequence 4")])
    assert seen.table.rows == [("vectors", "sequence 4")]
    assert [(fact.name, fact.value) for fact in vector.facts[:3]] == [
        ("epoch applied", "7"),
        ("epoch flushed", "6"),
        ("epoch durable", "5"),
    ]
    assert vector.table.rows == [("size", "3")]
    assert store_sections(history(), [])[1].table.empty


def test_costs_are_told_by_process_and_verb():
    observer = LiveObserver()
    observer.count(names.OBJECTS_REQUESTS, 4, verb="get", outcome="ok")
    observer.count(names.OBJECTS_BYTES, 2048, direction="read")
    embedding, requests, moved = cost_sections(history(observer), [])
    assert facts(embedding) == {"total": "$0.0000"}
    assert requests.table.rows == [("telemetry", "get", "4", "0 requests/s", "0")]
    assert moved.table.rows == [("telemetry", "read", "2.0 KiB")]


def test_a_job_that_has_ended_is_down_with_its_last_line():
    status = ChildStatus("telemetry", "waiting", restarts=2, since_ms=1_000, last_exit=1)
    status.last_lines.append("the disk is full")
    stage = PathStages(history(), EventBoard(), ADMIN).job(status, 2_000)
    assert (stage.title, stage.state, stage.error) == ("Telemetry job", StageState.DOWN, "the disk is full")
    (section,) = job_sections([status], 31_000)
    assert facts(section)["state"] == "waiting for 30 s"
    assert PathStages(history(), EventBoard(), ADMIN).job(ChildStatus("index"), 2_000).state is StageState.IDLE


def test_a_job_that_dies_again_and_again_is_down_while_it_runs_and_tells_why():
    """Started after each end, it runs most of the time: a look at this moment alone would call it well."""
    status = ChildStatus("telemetry", "running", 1, restarts=14, failures=3, since_ms=1_000, last_exit=1)
    status.last_lines.extend(["Corrupt: a batch cannot be read", "  remedy: restore the bytes from a good copy"])
    stages = PathStages(history(), EventBoard(), ADMIN)
    stage = stages.job(status, 31_000)
    assert stage.state is StageState.DOWN
    assert stage.error == "It ended 3 times in a row: Corrupt: a batch cannot be read"
    # Once it has run for a minute it is well.
    assert stages.job(status, 61_000).state is StageState.OK


def test_a_job_that_a_signal_has_stopped_is_shown_as_such():
    child = subprocess.Popen([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"])
    try:
        os.waitpid(child.pid, os.WUNTRACED)
        status = ChildStatus("telemetry", "running", child.pid, since_ms=1_000)
        stage = PathStages(history(), EventBoard(), ADMIN).job(status, 2_000)
        assert stage.state is StageState.DOWN
        assert f"kill -CONT {child.pid}" in stage.error
        assert facts(job_sections([status], 2_000)[0])["state"] == "stopped by a signal"
    finally:
        child.send_signal(signal.SIGCONT)
        child.wait()
    assert not status.is_stopped
