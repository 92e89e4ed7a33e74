"""Every metric of the operating page can be seen: on the page of this run, or in the test of a room that breaks something.

One page for all rooms, scraped over HTTP, after telemetry, samples, vectors and documents have gone their ways, with
small caps, old data, conflicts and a job that dies. A metric that neither this run nor a room's own test shows would be
dark in production, and nobody would know.
"""

from __future__ import annotations

import asyncio
import math
import re
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from prometheus_client import start_http_server
from tests.catalog.samples import data_file
from tests.cli.watched import run, shared_observer
from tests.indexing.desk import Desk, prose
from tests.landing.world import config_at, metric_rows, produce, stage_of
from tests.quiver.worlds import bundle, small, torn
from tests.quiver.worlds import opened as opened_quiver
from tests.relay.sinks.test_queue_consumer import SOURCE as QUEUE
from tests.relay.sinks.test_queue_consumer import samples
from tests.telemetry.samples import SOURCE, every_kind_of_metric
from tests.timeseries.stores import HOUR, one
from tests.timeseries.stores import SMALL as SMALL_SERIES
from tests.timeseries.stores import opened as opened_series
from tests.vector.stores import collection_of, found
from tests.vector.stores import opened as opened_vectors

from penstock.buffer import Collector, CollectorConfig, Producer, ProducerConfig
from penstock.catalog import Catalog, CatalogConfig, Vacuum
from penstock.cli.commands.stores.relay import relay
from penstock.cli.commands.stores.timeseries import timeseries
from penstock.cli.commands.telemetry.compact import compact
from penstock.cli.commands.telemetry.ingest import ingest
from penstock.cli.commands.telemetry.telemetry import telemetry
from penstock.cli.serving.supervisor import ChildSpec, Supervisor
from penstock.errors import AtCapacity, DeadlineExceeded, Unavailable
from penstock.gateway import Gateway, GatewayConfig, IngestRoutes
from penstock.keyvalue import MemoryVolume
from penstock.lake import SqlEngine
from penstock.landing import Lander
from penstock.objects import MemoryStore, ObjectMeta
from penstock.objects.port import Body
from penstock.observability import LiveObserver, names
from penstock.quiver import SizeCapPolicy
from penstock.records import Signal
from penstock.relay import QueueConsumer, RejectedRecords, SamplesPayload, SeriesSink
from penstock.telemetry import SeriesConfig, decode_otlp
from penstock.testing import ManualClock
from penstock.testing.storage.hostile_stores import PassingStore

TESTS = Path(__file__).parent.parent


@pytest.fixture
def observer(monkeypatch: pytest.MonkeyPatch) -> LiveObserver:
    return shared_observer(monkeypatch)


async def settle() -> None:
    """Let every task go on until it waits for the clock."""
    for _ in range(100):
        await asyncio.sleep(0)


def _telemetry(observer: LiveObserver, folder: Path) -> None:
    """From a file to the stores, by the commands; small files of one hour are merged."""
    edge, store, settings = folder / "edge", folder / "store", folder / "penstock.toml"
    settings.write_text("[catalog.compaction]\nhour_files = 2\n")
    for number in range(2):
        body = f"level {number} {1_700_000_000_000 + number}\n".encode()
        run(ingest, "-", "--format", "prometheus", "--quiver", edge, input=body)
        run(relay, "run", edge, "--to", "queue", store / "telemetry", "--until-empty")
        run(telemetry, "run", "--engine", "local", "--store", store)
    run(timeseries, "compact", store, "--yes")
    run(compact, "--engine", "local", "--store", store, "--config", settings)


async def _landing(observer: LiveObserver, folder: Path) -> None:
    """Rows that contradict their table, and points that have no series."""
    config = config_at(folder, mapping=SeriesConfig())
    histograms = decode_otlp(Signal.METRICS, every_kind_of_metric().SerializeToString(), SOURCE).batch
    await produce(
        config,
        [
            {"metrics": metric_rows(0, 4)},
            {"metrics": pa.Table.from_batches([histograms])},
            {"orders": pa.table({"tenant": ["a"], "n": [1]})},
        ],
    )
    await produce(config, [{"orders": pa.table({"tenant": ["a"], "n": ["two"]})}])
    lander = await Lander.open(config, stage_of(config), observer=observer)
    try:
        await lander.run_available()
    finally:
        await lander.close()


async def _quiver(observer: LiveObserver, folder: Path) -> None:
    """A store at its cap that drops the oldest, and one that makes callers wait; acknowledgements with a gap."""
    for policy in SizeCapPolicy:
        retention = replace(small().retention, segment_count_cap=3, size_cap_policy=policy)
        clock = ManualClock()
        config = replace(small(), retention=retention)
        store = await opened_quiver(torn(), config, clock=clock, observer=observer)
        await store.register("s")
        for number in range(3):
            await store.ingest(bundle(number))
            await store.flush()
        if policy is SizeCapPolicy.BACKPRESSURE:
            with pytest.raises(AtCapacity):
                await store.try_ingest(bundle(3))
            late = asyncio.create_task(store.ingest(bundle(4), timeout=1))
            await settle()
            clock.advance(2)
            with pytest.raises(DeadlineExceeded):
                await late
            deliveries = [await store.next("s", 0.0) for _ in range(2)]
            assert all(deliveries)
            await deliveries[1].ack()  # type: ignore[union-attr]
        else:
            await store.ingest(bundle(3))
            await store.flush()
        await store.sweep()
        clock.advance(31)
        await settle()
        await store.close()


async def _series(observer: LiveObserver, folder: Path) -> None:
    """An hour that is folded, one that is too old, samples that come too late or twice, and a query."""
    clock = ManualClock(10 * HOUR)
    config = replace(SMALL_SERIES, retention_seconds=4 * 3600.0)
    async with await opened_series(MemoryVolume(), config, clock=clock, observer=observer) as store:
        for place, at in ((1, 8 * HOUR), (2, 8 * HOUR + 1), (2, 8 * HOUR + 2), (3, 7 * HOUR), (4, HOUR)):
            changes = store.changes("queue", place)
            changes.write(one(1.0, at))
            await store.write(changes, durable=True)
        await store.tend()
        await store.query("up", 8 * HOUR)
        clock.advance(3600 * 3)
        await store.tend()


async def _vectors(observer: LiveObserver, folder: Path) -> None:
    """Rows that fill lists, a change that comes twice, a search."""
    async with await opened_vectors(MemoryVolume(), observer=observer) as store:
        collection = await collection_of(store)
        spread: Any = np.random.default_rng(1).normal(size=400).astype(np.float32)
        vectors = pa.FixedSizeListArray.from_arrays(spread, 2)
        table = pa.table({"id": [str(number) for number in range(200)], "vector": vectors})
        for _ in range(2):
            changes = store.changes("queue", 1)
            changes.upsert(collection, table)
            await store.write(changes, durable=True)
        # All in one place, so that a list outgrows its size.
        close: Any = np.linspace(1, 1.01, 400, dtype=np.float32)
        near = pa.FixedSizeListArray.from_arrays(close, 2)
        await collection.upsert(pa.table({"id": [f"n{number}" for number in range(200)], "vector": near}), durable=True)
        await store.tend()
        assert len(await found(collection, k=5)) == 5


class _BlinkingStore(PassingStore):
    """Fails every first upload of a batch."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._seen: set[str] = set()

    async def put(self, key: str, data: Body) -> ObjectMeta:
        if key not in self._seen:
            self._seen.add(key)
            raise Unavailable("no answer")
        return await super().put(key, data)


async def _queue(observer: LiveObserver, folder: Path) -> None:
    """Uploads that are tried again, a consumer that feeds a store, and a collector of what is left."""
    clock = ManualClock(1_700_000_000_000)
    memory = MemoryStore(clock=clock)
    config = ProducerConfig(backoff_seconds_min=1e-6, backoff_seconds_max=1e-6)
    async with Producer(_BlinkingStore(memory), config, observer=observer) as producer:
        await producer.produce([samples("a", 1, 2)], SamplesPayload().encode())
        await producer.flush()
    async with await opened_series(MemoryVolume()) as store:
        rejected = RejectedRecords(memory, CollectorConfig().data_path_prefix, "timeseries")
        sink = SeriesSink(store, QUEUE, rejected, observer=observer)
        await QueueConsumer("timeseries", memory, sink, observer=observer).run(until_empty=True)
    clock.advance(86_400 * 30)
    await Collector(memory, clock=clock, observer=observer).collect()


async def _catalog(observer: LiveObserver, folder: Path) -> None:
    """Files in segments, one of which a change has to fetch; a plan; a query; a vacuum."""
    clock = ManualClock()
    config = CatalogConfig(inline_files_max=10, segment_rows_max=50, grace_seconds=0.0)
    catalog = await Catalog.open(MemoryStore(), "lake", config, clock=clock, observer=observer)
    files = [data_file(number) for number in range(20)]
    await catalog.register(files)
    await catalog.spill()
    # Another writer has not read the segment that holds the file.
    other = await Catalog.open(catalog.store, "lake", config, clock=clock, observer=observer)
    await other.delete([files[0].path])
    await catalog.plan()
    clock.advance(10)
    await Vacuum(catalog).run()
    async with SqlEngine(catalog, observer=observer) as engine:
        await engine.query("SELECT 1")


async def _gateway(observer: LiveObserver, folder: Path) -> None:
    """Requests of which one holds a point that cannot be stored."""
    good = {"timeUnixNano": "1700000000000000000", "asDouble": 1.0}
    metrics = [{"name": "level", "gauge": {"dataPoints": [good]}}, {"name": "", "gauge": {"dataPoints": [good]}}]
    body = {"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]}
    store = await opened_quiver(torn(), observer=observer)
    config = GatewayConfig()
    app = Gateway(IngestRoutes(store, config, observer=observer).endpoints(), config, observer=observer)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        assert (await client.post("/v1/metrics", json=body)).status_code == 200
    await store.close()


async def _supervisor(observer: LiveObserver, folder: Path) -> None:
    """A job that cannot be started is started again."""
    tries = 0

    async def launch(_: ChildSpec) -> Any:
        nonlocal tries
        tries += 1
        if tries == 2:
            supervisor.stop()
        raise FileNotFoundError(2, "there is no such program")

    clock = ManualClock()
    supervisor = Supervisor([ChildSpec("index", ("penstock",))], launch=launch, clock=clock, observer=observer)
    running = asyncio.create_task(supervisor.run())
    await settle()
    clock.advance(3600)
    await running


def _documents(observer: LiveObserver, folder: Path) -> None:
    """Two documents and an event that comes twice, on the engine without Spark."""
    desk = Desk(None, folder)
    first = desk.write("a.txt", prose("rivers", 40))
    desk.send(first, first, desk.write("b.html", "<p>mills</p>"))
    with desk.job(desk.config(), observer=observer) as job:
        job.run_available()


def _shown(page: str) -> set[str]:
    """The metrics of which a page has a number."""
    found: set[str] = set()
    for line in page.splitlines():
        if line.startswith("#"):
            continue
        name, value = re.split(r"[{ ]", line)[0], float(line.rsplit(" ", 1)[1])
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        metric = names.METRICS.get(name) or names.METRICS.get(base)
        if metric is None or math.isnan(value):
            continue
        # A counter or a histogram without labels stands there with 0 from the start; a gauge that is 0 was set.
        if value or metric.kind is names.Kind.GAUGE:
            found.add(metric.name)
    return found


def _shown_by_rooms() -> set[str]:
    """Metrics that a room's test has asked an observer for, by the name of their constant."""
    asked = re.compile(r"\b(?:counted|gauged|observed|told)\(\s*names\.([A-Z0-9_]+)")
    told = {name for path in TESTS.rglob("test_*.py") for name in asked.findall(path.read_text())}
    return {metric.name for name, metric in vars(names).items() if name in told and isinstance(metric, names.Metric)}


def test_a_metric_that_no_run_can_show_is_none(observer: LiveObserver, tmp_path: Path) -> None:
    for work in (_telemetry, _documents):
        (folder := tmp_path / work.__name__).mkdir()
        work(observer, folder)
    for scenario in (_landing, _quiver, _series, _vectors, _queue, _catalog, _gateway, _supervisor):
        (folder := tmp_path / scenario.__name__).mkdir()
        asyncio.run(scenario(observer, folder))
    server, thread = start_http_server(0, "127.0.0.1", observer.registry)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=30) as answer:
            page = answer.read().decode()
    finally:
        server.shutdown()
        thread.join()
    shown = _shown(page)
    rooms = {re.match(r"penstock_([a-z]+)", name).group(1) for name in shown}  # type: ignore[union-attr]
    assert rooms == {re.match(r"penstock_([a-z]+)", name).group(1) for name in names.METRICS}  # type: ignore[union-attr]
    assert sorted(names.METRICS.keys() - shown - _shown_by_rooms()) == []
