"""Everything of `penstock serve` in one process: HTTP, the store at the edge and its relay, and readers for queries.

Jobs are processes of their own, kept running by the supervisor: a Spark job that dies takes nothing else with it. What
was acknowledged is durable before the answer, so that any part may be killed and started again.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.buffer import Producer, ProducerConfig
from penstock.catalog import Catalog, CatalogConfig
from penstock.cli.serving.edge import opened_edge
from penstock.cli.serving.house_view import QueueView, ServedHouse
from penstock.cli.serving.supervisor import ChildSpec, Supervisor
from penstock.cli.settings.configuration import Settings
from penstock.cli.settings.sharding import apply_sharding, sharded_series
from penstock.cli.settings.store_access import store_options
from penstock.cli.settings.telemetry_place import signal_tables, telemetry_url
from penstock.cli.settings.wiring import Wiring
from penstock.errors import InvalidInput, NotFound
from penstock.gateway import (
    AboutRoutes,
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
    PrometheusRoutes,
    Sessions,
    SqlRoutes,
    StoredSeries,
    StoredTables,
    TokenBook,
    serving,
)
from penstock.indexing import url_of
from penstock.lake import SqlConfig, SqlEngine
from penstock.objects import ObjectStore, StoreUrl, open_store, parse_url
from penstock.observability import LiveObserver, Observer
from penstock.telemetry import DecodeLimits

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from penstock.gateway import Route

__all__ = ["ROLES", "ServeConfig", "Serving"]

ROLES: Final = ("gateway", "jobs", "query")
JOBS: Final = ("index", "telemetry", "compact")
# Where the telemetry job keeps what it makes, below its store.
_SERIES_PATH: Final = "series"
CATALOG_PATH: Final = "lake"


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """What `penstock serve` runs, and where its data is."""

    # Directory or URL of the store.
    store: str = "penstock-data"
    # Directory of the store at the edge; None keeps it beside a directory store.
    edge: str | None = None
    # YAML file with the settings of the store at the edge.
    edge_config: str | None = None
    # Parts that run here: gateway, jobs, query.
    roles: tuple[str, ...] = ROLES
    # Jobs that run here: index, telemetry, compact.
    jobs: tuple[str, ...] = JOBS
    # What runs the heavy stages of jobs: `spark`, or `local` for this machine alone.
    engine: str = "spark"
    # Spark master of the jobs.
    master: str = "local[*]"

    def __post_init__(self) -> None:
        unknown = [role for role in self.roles if role not in ROLES]
        if unknown or not self.roles:
            raise InvalidInput(f"roles = {list(self.roles)}", "there is no such choice", f"use {', '.join(ROLES)}")
        if any(job not in JOBS for job in self.jobs):
            raise InvalidInput(f"jobs = {list(self.jobs)}", "there is no such choice", f"use {', '.join(JOBS)}")
        if self.engine not in ("spark", "local"):
            raise InvalidInput(f"engine = {self.engine!r}", "there is no such choice", "use spark or local")

    @property
    def url(self) -> str:
        return url_of(self.store)

    @property
    def uploads_url(self) -> str:
        """Beside the store, never inside it."""
        url = parse_url(self.url)
        if url.prefix:
            return str(StoreUrl(url.scheme, url.place, f"{url.prefix}-uploads"))
        if url.scheme == "file":
            return str(StoreUrl("file", f"{url.place}-uploads"))
        return str(StoreUrl(url.scheme, url.place, "penstock-uploads"))

    @property
    def telemetry_url(self) -> str:
        """The queue, the data files and the series of telemetry: a part of the store."""
        return telemetry_url(self.store)

    @property
    def edge_path(self) -> str:
        if self.edge is not None:
            return str(Path(self.edge).absolute())
        url = parse_url(self.url)
        return f"{url.place}-edge" if url.scheme == "file" else str(Path("penstock-edge").absolute())


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

    async def run(self) -> None:
        """Until SIGINT or SIGTERM; then requests under way are answered, jobs ended, and the edge written out."""
        stop = asyncio.Event()
        _on_signals(stop)
        await apply_sharding(self.config.telemetry_url, self.settings, self.observer)
        supervisor = Supervisor(self._jobs(), observer=self.observer)
        async with AsyncExitStack() as stack:
            keeping = asyncio.ensure_future(supervisor.run())
            stack.push_async_callback(_ended, supervisor, keeping)
            if "gateway" in self.config.roles or "query" in self.config.roles:
                await self._serve(stack, supervisor, stop)
            else:
                self.announce("jobs only")
                await stop.wait()

    async def _serve(self, stack: AsyncExitStack, supervisor: Supervisor, stop: asyncio.Event) -> None:
        documents = await stack.enter_async_context(self._documents())
        view = ServedHouse(
            documents, QueueView("Documents queue", documents.producer_store, self._manifest), supervisor
        )
        sessions = Sessions(secure=self.gateway.certificate is not None)
        guard = Guard(self.gateway, _Tokens(self.gateway.tokens), session=sessions.principal)
        routes = DocumentRoutes(documents, self.gateway)
        endpoints = routes.endpoints()
        if "gateway" in self.config.roles:
            endpoints += NotificationRoutes(documents, self.gateway).endpoints()
            endpoints += await self._telemetry_in(stack, view, guard)
        sql: SqlRoutes | None = None
        if "query" in self.config.roles:
            endpoints += PrometheusRoutes(self._series(stack), self.gateway, version("penstock")).endpoints()
            sql = SqlRoutes(await self._tables(stack), self.gateway)
            endpoints += sql.endpoints()
        endpoints += DashboardRoutes(
            view,
            self.gateway,
            sessions,
            authenticate=lambda exchange, token: guard.authenticate(exchange, f"Bearer {token}"),
            search=routes.passages,
            sql=sql.shown if sql else None,
            has_series="query" in self.config.roles,
        ).endpoints()
        endpoints += AboutRoutes(version("penstock"), registry=self._registry).endpoints(endpoints)
        app = Gateway(endpoints, self.gateway, guard=guard, observer=self.observer)
        server = await stack.enter_async_context(serving(HttpServer(app, self.gateway)))
        if self.gateway.admin_port:
            about = AboutRoutes(version("penstock"), registry=self._registry)
            admin = Gateway(about.endpoints([]), GatewayConfig(), observer=self.observer)
            await stack.enter_async_context(
                serving(HttpServer(admin, self.gateway, host="127.0.0.1", port=self.gateway.admin_port))
            )
        scheme = "https" if self.gateway.certificate else "http"
        self.announce(f"{scheme}://{self.gateway.host}:{server.port}")
        await stop.wait()

    async def _telemetry_in(self, stack: AsyncExitStack, view: ServedHouse, guard: Guard) -> list[Route]:
        """The store at the edge with its relay, and the routes into it."""
        edge = await stack.enter_async_context(
            opened_edge(
                self.config.edge_path, self.config.edge_config, self.config.telemetry_url, self.settings, self.observer
            )
        )
        view.edge = edge.quiver
        view.telemetry_queue = QueueView("Telemetry queue", edge.queue_store, self._manifest)
        ingest = IngestRoutes(edge.quiver, self.gateway, self.settings.of(DecodeLimits), observer=self.observer)
        if self.gateway.grpc_port:
            grpc = GrpcServer(ingest, guard, self.gateway, observer=self.observer)
            await grpc.start()
            stack.push_async_callback(grpc.stop)
        return ingest.endpoints()

    def _series(self, stack: AsyncExitStack) -> StoredSeries:
        url = self.config.telemetry_url
        series = StoredSeries(lambda: sharded_series(url, _SERIES_PATH, self.settings, self.observer))
        stack.push_async_callback(series.close)
        return series

    async def _tables(self, stack: AsyncExitStack) -> StoredTables:
        store = await self._opened(self.config.telemetry_url, stack)

        async def opened() -> SqlEngine:
            catalog = await Catalog.open(store, CATALOG_PATH, self.settings.of(CatalogConfig), observer=self.observer)
            stack.push_async_callback(catalog.close)
            return SqlEngine(catalog, self.settings.of(SqlConfig), known=signal_tables(), observer=self.observer)

        tables = StoredTables(opened)
        stack.push_async_callback(tables.close)
        return tables

    @property
    def _manifest(self) -> str:
        return Wiring(self.settings).manifest_path

    @property
    def _registry(self) -> CollectorRegistry | None:
        return self.observer.registry if isinstance(self.observer, LiveObserver) else None

    @asynccontextmanager
    async def _documents(self) -> AsyncIterator[DocumentServices]:
        url, wiring = self.config.url, Wiring(self.settings, self.observer)
        async with AsyncExitStack() as stack:
            store = await self._opened(url, stack)
            uploads = await self._opened(self.config.uploads_url, stack)
            producer = Producer(store, self.settings.of(ProducerConfig), observer=self.observer)
            await stack.enter_async_context(producer)
            index = KeptReader(lambda: wiring.reader(url))
            stack.push_async_callback(index.close)
            yield DocumentServices(url, index, producer, store, wiring, self.config.uploads_url, uploads)

    async def _opened(self, url: str, stack: AsyncExitStack) -> ObjectStore:
        store = await open_store(url, observer=self.observer, **store_options(self.settings, url))
        stack.push_async_callback(store.close)
        return store

    def _jobs(self) -> list[ChildSpec]:
        if "jobs" not in self.config.roles:
            return []
        engine: tuple[str, ...] = ("--engine", self.config.engine)
        if self.config.engine == "spark":
            engine = (*engine, "--master", self.config.master)
        base, store = (sys.executable, "-m", "penstock.cli"), ("--store", self.config.url)
        jobs = {
            "index": ("index", "--follow", *store, "--allow", self.config.uploads_url),
            "telemetry": ("telemetry", "run", "--follow", *store),
            "compact": ("compact", "--follow", *store),
        }
        return [
            ChildSpec(name, (*base, *command, *engine, *self.job_options))
            for name, command in jobs.items()
            if name in self.config.jobs
        ]


class _Tokens:
    """The tokens of a file as they are now; None without a file. A file that becomes unreadable keeps what was read."""

    def __init__(self, file: str | None) -> None:
        self._path = Path(file) if file else None
        self._stamp: tuple[int, int] | None = None
        self._book: TokenBook | None = None
        if self._path is not None:
            self._book = TokenBook.load(self._path)
            self._stamp = self._stamped()

    def __call__(self) -> TokenBook | None:
        if self._path is not None and (stamp := self._stamped()) != self._stamp:
            try:
                self._book = TokenBook.load(self._path)
            except NotFound:
                # Without the file nobody has a token.
                self._book = TokenBook.new()
            self._stamp = stamp
        return self._book

    def _stamped(self) -> tuple[int, int] | None:
        assert self._path is not None
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_ino


async def _ended(supervisor: Supervisor, keeping: asyncio.Future[None]) -> None:
    supervisor.stop()
    await keeping


def _on_signals(stop: asyncio.Event) -> None:
    """The first one ends everything in good order; a second one ends the process at once."""
    loop = asyncio.get_running_loop()

    def heard(number: int) -> None:
        loop.remove_signal_handler(number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, heard, number)
