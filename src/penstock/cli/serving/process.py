"""Everything of `penstock serve` in one process: HTTP, the store at the edge and its relay, and readers for queries.

Jobs are processes of their own, kept running by the supervisor: a Spark job that dies takes nothing else with it. What
was acknowledged is durable before the answer, so that any part may be killed and started again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from penstock.buffer import ConsumerConfig, Producer, ProducerConfig, RestartingProducer
from penstock.catalog import Catalog, CatalogConfig
from penstock.cli.serving.edge import opened_edge
from penstock.cli.serving.house_view import DocumentsView, EventBoard, KeptCatalog, QueueView, ServedHouse
from penstock.cli.serving.live_tokens import LiveTokens
from penstock.cli.serving.serve_config import CATALOG_PATH, SERIES_PATH, ServeConfig
from penstock.cli.serving.sql_child import bare_environment, sql_command, worker_bounds
from penstock.cli.serving.storage_meter import StorageMeter
from penstock.cli.serving.supervisor import SUPERVISED, ChildSpec, Supervisor
from penstock.cli.serving.watch import ServeWatch
from penstock.cli.settings.configuration import Settings
from penstock.cli.settings.release import release
from penstock.cli.settings.secrets import read_secret
from penstock.cli.settings.sharding import apply_sharding, sharded_series
from penstock.cli.settings.store_access import store_options
from penstock.cli.settings.wiring import Wiring
from penstock.errors import NotFound
from penstock.gateway import (
    AboutRoutes,
    CatalogLender,
    DashboardRoutes,
    DocumentRoutes,
    DocumentServices,
    Gateway,
    GatewayConfig,
    GrpcServer,
    Guard,
    HttpServer,
    IngestRoutes,
    KeptReader,
    NotificationRoutes,
    NotificationSenders,
    PrometheusRoutes,
    Sessions,
    SqlProcesses,
    SqlRoutes,
    StorageQuota,
    StoredSeries,
    serving,
)
from penstock.indexing import Credentials
from penstock.lake import SqlConfig
from penstock.objects import ObjectStore, open_store
from penstock.observability import Observer
from penstock.telemetry import DecodeLimits

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from penstock.gateway import Route

__all__ = ["Serving"]

# Nothing is ever stored there.
_PROBED_KEY: Final = "penstock-readiness"


@dataclass
class Serving:
    """What a command is given. `announce` is called with the address once requests are answered."""

    config: ServeConfig
    gateway: GatewayConfig
    settings: Settings
    observer: Observer
    # Options that jobs are started with besides their own, such as `--config FILE`.
    job_options: tuple[str, ...] = ()
    announce: Callable[[str], None] = lambda _address: None
    # Hears the events of the observer and of the jobs.
    board: EventBoard = field(default_factory=EventBoard)
    _relaying: asyncio.Future[None] | None = None
    _keeping: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Until SIGINT or SIGTERM; then requests under way are answered, jobs ended, and the edge written out."""
        stop = asyncio.Event()
        _on_signals(stop)
        await apply_sharding(self.config.telemetry_url, self.settings, self.observer)
        async with AsyncExitStack() as stack:
            watch = ServeWatch(self.observer, self.board)
            watch.open(stack)
            supervisor = Supervisor(self._jobs(watch), observer=self.observer, line_shown=self.board.line)
            stack.push_async_callback(self._end_jobs, supervisor)
            if "gateway" in self.config.roles or "query" in self.config.roles:
                await self._serve(stack, supervisor, stop, watch)
            else:
                self._keeping = asyncio.ensure_future(supervisor.run())
                self.announce("jobs only")
                await stop.wait()

    async def _end_jobs(self, supervisor: Supervisor) -> None:
        supervisor.stop()
        if self._keeping is not None:
            await self._keeping

    async def _serve(
        self, stack: AsyncExitStack, supervisor: Supervisor, stop: asyncio.Event, watch: ServeWatch
    ) -> None:
        documents = await stack.enter_async_context(self._documents())
        view = self._view(documents, supervisor, watch)
        sampling = asyncio.ensure_future(view.figures.run())
        stack.callback(sampling.cancel)
        sessions = Sessions(secure=self.gateway.certificate is not None)
        telemetry = await self._opened(self.config.telemetry_url, stack)
        view.telemetry_queue = replace(self._queue_view("Telemetry queue", telemetry), is_sharded=True)
        catalog = self._catalog(stack, telemetry)
        guard = Guard(
            self.gateway,
            LiveTokens(self.gateway.tokens, self.observer),
            session=sessions.principal,
            storage=self._storage(stack, documents, catalog),
        )
        routes = DocumentRoutes(documents, self.gateway)
        endpoints = routes.endpoints()
        if "gateway" in self.config.roles:
            senders = self._senders(documents, guard)
            endpoints += NotificationRoutes(documents, self.gateway, guard, senders).endpoints()
            endpoints += await self._telemetry_in(stack, view, guard, stop)
        sql: SqlRoutes | None = None
        series: StoredSeries | None = None
        if "query" in self.config.roles:
            series = self._series(stack)
            endpoints += PrometheusRoutes(series, self.gateway, release()).endpoints()
            view.catalog = catalog
            sql = SqlRoutes(self._tables(stack, telemetry, catalog), self.gateway)
            endpoints += sql.endpoints()
        endpoints += DashboardRoutes(
            view,
            self.gateway,
            sessions,
            authenticate=lambda exchange, token: guard.authenticate(exchange, f"Bearer {token}"),
            search=routes.passages,
            sql=sql.shown if sql else None,
            series=series,
        ).endpoints()
        # Duck-typed: what collects, not a registry that somebody could register with.
        metrics = cast("CollectorRegistry | None", watch.registry)
        # Metrics have one listener: that of administration, where there is one.
        registry = None if self.gateway.admin_port else metrics
        probes = {"store": partial(_probe, documents.producer_store), "uploads": partial(_probe, documents.uploads)}
        endpoints += AboutRoutes(release(), probes, registry=registry).endpoints(endpoints)
        app = Gateway(endpoints, self.gateway, guard=guard, observer=self.observer)
        server = await stack.enter_async_context(serving(HttpServer(app, self.gateway)))
        if self.gateway.admin_port:
            about = AboutRoutes(release(), probes, registry=metrics)
            admin = Gateway(about.endpoints([]), GatewayConfig(), observer=self.observer)
            await stack.enter_async_context(
                serving(HttpServer(admin, self.gateway, host="127.0.0.1", port=self.gateway.admin_port))
            )
        # Not before edge and ports are ours: the jobs of a second `serve` would take the queues from those of the first.
        self._keeping = asyncio.ensure_future(supervisor.run())
        scheme = "https" if self.gateway.certificate else "http"
        self.announce(f"{scheme}://{server.address}")
        await stop.wait()
        if self._relaying is not None and self._relaying.done():
            # It never ends by itself: its error ends the process, and whoever runs it starts it again.
            self._relaying.result()

    async def _telemetry_in(
        self, stack: AsyncExitStack, view: ServedHouse, guard: Guard, stop: asyncio.Event
    ) -> list[Route]:
        """The store at the edge with its relay, and the routes into it."""
        edge = await stack.enter_async_context(
            opened_edge(
                self.config.edge_path, self.config.edge_config, self.config.telemetry_url, self.settings, self.observer
            )
        )
        self._relaying = edge.relaying
        edge.relaying.add_done_callback(lambda _: stop.set())
        view.edge = edge.quiver
        ingest = IngestRoutes(edge.quiver, self.gateway, self.settings.of(DecodeLimits), observer=self.observer)
        if self.gateway.grpc_port:
            grpc = GrpcServer(ingest, guard, self.gateway, observer=self.observer)
            await grpc.start()
            stack.push_async_callback(grpc.stop)
        return ingest.endpoints()

    def _series(self, stack: AsyncExitStack) -> StoredSeries:
        url = self.config.telemetry_url
        series = StoredSeries(lambda: sharded_series(url, SERIES_PATH, self.settings, self.observer))
        stack.push_async_callback(series.close)
        return series

    def _senders(self, documents: DocumentServices, guard: Guard) -> NotificationSenders:
        rules = self.gateway.notifications
        credentials = {
            tenant: Credentials(
                keys=[read_secret(file) for file in rules.key_files.get(tenant, ())],
                topics=rules.topics.get(tenant, ()),
            )
            for tenant in (*rules.key_files, *rules.topics)
        }
        return NotificationSenders(rules, credentials, documents.doors.spec(documents.url), guard.address)

    def _storage(self, stack: AsyncExitStack, documents: DocumentServices, catalog: KeptCatalog) -> StorageQuota | None:
        if not self.gateway.tenant.storage_bytes:
            return None
        quota = StorageQuota(self.gateway.tenant.storage_bytes, StorageMeter(catalog, documents.uploads))
        measuring = asyncio.ensure_future(quota.keep_measuring())
        stack.callback(measuring.cancel)
        return quota

    def _tables(self, stack: AsyncExitStack, store: ObjectStore, catalog: KeptCatalog) -> SqlProcesses:
        config, url = self.settings.of(SqlConfig), self.config.telemetry_url
        bounds = worker_bounds(config, self.settings.of(CatalogConfig))
        processes = SqlProcesses(
            sql_command(url, CATALOG_PATH, bounds),
            config,
            environment={**bare_environment(os.environ), SUPERVISED: "1"},
            lender=CatalogLender(store, CATALOG_PATH, catalog.catalog),
            observer=self.observer,
        )
        stack.push_async_callback(processes.close)
        return processes

    def _catalog(self, stack: AsyncExitStack, store: ObjectStore) -> KeptCatalog:
        """The catalog of telemetry, for the dashboard and for quotas."""

        async def opened() -> Catalog:
            catalog = await Catalog.open(store, CATALOG_PATH, self.settings.of(CatalogConfig), observer=self.observer)
            stack.push_async_callback(catalog.close)
            return catalog

        return KeptCatalog(opened)

    def _view(self, documents: DocumentServices, supervisor: Supervisor, watch: ServeWatch) -> ServedHouse:
        reading = Wiring(self.settings).reading(places=(self.config.uploads_url,))
        queue = self._queue_view("Documents queue", documents.producer_store)
        view = ServedHouse(DocumentsView(documents, reading), queue, supervisor, watch.figures(), watch.board)
        view.queue = replace(queue, position=view.position)
        return view

    def _queue_view(self, title: str, store: ObjectStore) -> QueueView:
        consumer = self.settings.of(ConsumerConfig)
        return QueueView(title, store, consumer.manifest_path, consumer.data_path_prefix)

    @asynccontextmanager
    async def _documents(self) -> AsyncIterator[DocumentServices]:
        url, wiring = self.config.url, Wiring(self.settings, self.observer)
        async with AsyncExitStack() as stack:
            store = await self._opened(url, stack)
            uploads = await self._opened(self.config.uploads_url, stack)
            # One that gave up during an outage must not refuse documents until somebody restarts this process.
            producer = RestartingProducer(
                lambda: Producer(store, self.settings.of(ProducerConfig), observer=self.observer)
            )
            await stack.enter_async_context(producer)
            index = KeptReader(lambda: wiring.reader(url))
            stack.push_async_callback(index.close)
            yield DocumentServices(url, index, producer, store, wiring, self.config.uploads_url, uploads)

    async def _opened(self, url: str, stack: AsyncExitStack) -> ObjectStore:
        store = await open_store(url, observer=self.observer, **store_options(self.settings, url))
        stack.push_async_callback(store.close)
        return store

    def _allowed(self) -> list[str]:
        """Uploads, and every bucket whose notifications are taken: the job may read those, and of buckets no others."""
        listed = {
            *self.gateway.buckets,
            *(name for names in self.gateway.notifications.buckets.values() for name in names),
        }
        urls = [self.config.uploads_url, *(name if "://" in name else f"s3://{name}" for name in sorted(listed))]
        return [part for url in urls for part in ("--allow", url)]

    def _jobs(self, watch: ServeWatch) -> list[ChildSpec]:
        if "jobs" not in self.config.roles:
            return []
        engine: tuple[str, ...] = ("--engine", self.config.engine)
        if self.config.engine == "spark":
            engine = (*engine, "--master", self.config.master)
        base, store = (sys.executable, "-m", "penstock.cli"), ("--store", self.config.url)
        jobs = {
            "index": ("index", "--follow", *store, *self._allowed()),
            "telemetry": ("telemetry", "run", "--follow", *store),
            "compact": ("compact", "--follow", *store),
        }
        return [
            ChildSpec(name, (*base, *command, *engine, *self.job_options), watch.environment(name))
            for name, command in jobs.items()
            if name in self.config.jobs
        ]


async def _probe(store: ObjectStore) -> None:
    """Return when a store answers, whatever it has."""
    with suppress(NotFound):
        await store.head(_PROBED_KEY)


def _on_signals(stop: asyncio.Event) -> None:
    """The first one ends everything in good order; a second one ends the process at once."""
    loop = asyncio.get_running_loop()

    def heard(number: int) -> None:
        loop.remove_signal_handler(number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, heard, number)
