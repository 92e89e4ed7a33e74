"""What the dashboard of `penstock serve` sees: the stages of the path, and a page for each part that runs here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.buffer import Manifest, lag_of, queued_now
from penstock.cli.serving.supervisor import ChildStatus, Supervisor
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import NotFound, PenstockError
from penstock.gateway import DocumentServices, Fact, Section, Stage, StageState, TableView
from penstock.indexing import SOURCE, DocumentEntry, list_entries, subject_of
from penstock.objects import ObjectStore
from penstock.quiver import Quiver

__all__ = ["QueueView", "ServedHouse"]

# Behind by more than this is told as late.
_LATE_SECONDS: Final = 60.0
_ROWS_MAX: Final = 200


@dataclass(frozen=True)
class QueueView:
    """A queue of the store. `position` tells how far its consumer has stored it."""

    title: str
    store: ObjectStore
    manifest_path: str

    async def read(self) -> Manifest:
        return await queued_now(self.store, self.manifest_path)


@dataclass
class ServedHouse:
    """The view of one process. Parts that do not run here are left out."""

    documents: DocumentServices
    queue: QueueView
    supervisor: Supervisor
    edge: Quiver | None = None
    telemetry_queue: QueueView | None = None
    clock: Clock = SYSTEM_CLOCK
    pages: Sequence[tuple[str, str]] = field(
        default=(("edge", "Edge"), ("queue", "Queue"), ("documents", "Documents"), ("jobs", "Jobs"))
    )

    # The path ----------------------------------------------------------------------------------------

    async def stages(self, tenant: str) -> list[Stage]:
        found = [self._edge_stage()] if self.edge is not None else []
        if self.telemetry_queue is not None:
            found.append(await self._queue_stage(self.telemetry_queue, None))
        found.append(await self._queue_stage(self.queue, await self._position()))
        found += [_job_stage(status) for status in self.supervisor.statuses]
        found.append(await self._documents_stage(tenant))
        return found

    def _edge_stage(self) -> Stage:
        assert self.edge is not None
        state = self.edge.state
        waiting = {name: state.lag(name) for name in state.subscriptions}
        facts = [
            Fact("segments", f"{len(self.edge.segments):,}"),
            Fact("stored", _bytes(self.edge.stored_bytes)),
            Fact("in memory", _bytes(self.edge.open_bytes)),
            *[Fact(f"waiting for {name}", f"{count:,}") for name, count in waiting.items()],
        ]
        return Stage(
            "Edge", StageState.OK if self.edge.segments or self.edge.open_bytes else StageState.IDLE, facts, page="edge"
        )

    async def _queue_stage(self, queue: QueueView, position: int | None) -> Stage:
        try:
            manifest = await queue.read()
        except PenstockError as error:
            return Stage(queue.title, StageState.DOWN, error=str(error), page="queue")
        lag = lag_of(manifest, position, self.clock.now_ms())
        state = StageState.LATE if lag.seconds > _LATE_SECONDS else StageState.OK if lag.batches else StageState.IDLE
        facts = [Fact("waiting", f"{lag.batches:,} batches"), Fact("lag", f"{lag.seconds:.0f} s")]
        return Stage(queue.title, state, facts, page="queue")

    async def _position(self) -> int | None:
        try:
            return await (await self.documents.index.reader()).position(SOURCE)
        except NotFound:
            return None

    async def _documents_stage(self, tenant: str) -> Stage:
        entries = [entry for _, found in await self._entries(tenant) for entry in found]
        counted = Counter(map(_status, entries))
        state = StageState.LATE if counted["quarantined"] else StageState.OK if entries else StageState.IDLE
        facts = [Fact(name, f"{count:,}") for name, count in sorted(counted.items())]
        return Stage("Documents", state, facts or [Fact("indexed", "0")], page="documents")

    # Pages -------------------------------------------------------------------------------------------

    async def page(self, name: str, tenant: str) -> list[Section]:
        if name == "edge":
            return self._edge_page()
        if name == "queue":
            return await self._queue_page()
        if name == "documents":
            return await self._documents_page(tenant)
        return [_job_section(status) for status in self.supervisor.statuses] or [
            Section("Jobs", table=TableView((), (), empty="No jobs run in this process."))
        ]

    def _edge_page(self) -> list[Section]:
        if self.edge is None:
            return [Section("Edge", table=TableView((), (), empty="No store at the edge runs in this process."))]
        state = self.edge.state
        segments = [
            (str(meta.segment_seq), ", ".join(meta.signals), f"{meta.rows:,}", _bytes(meta.bytes))
            for meta in self.edge.segments[-_ROWS_MAX:]
        ]
        subscribers = [(name, f"{state.lag(name):,}") for name in state.subscriptions]
        return [
            Section("Subscribers", table=TableView(("subscriber", "segments waiting"), subscribers, frozenset({1}))),
            Section(
                "Segments",
                [Fact("stored", _bytes(self.edge.stored_bytes)), Fact("open in memory", _bytes(self.edge.open_bytes))],
                TableView(("segment", "signal", "rows", "size"), segments, frozenset({0, 2, 3}), "Nothing waits."),
            ),
        ]

    async def _queue_page(self) -> list[Section]:
        queues = [(self.queue, await self._position())]
        if self.telemetry_queue is not None:
            queues.insert(0, (self.telemetry_queue, None))
        return [await self._queue_section(queue, position) for queue, position in queues]

    async def _queue_section(self, queue: QueueView, position: int | None) -> Section:
        manifest = await queue.read()
        lag = lag_of(manifest, position, self.clock.now_ms())
        rows = [(str(one.sequence), one.location) for one in manifest.after(position, _ROWS_MAX)]
        facts = [
            Fact("fence", str(manifest.fence)),
            Fact("next sequence", f"{manifest.next_sequence:,}"),
            Fact("stored through", "–" if position is None else f"{position:,}"),
            Fact("waiting", f"{lag.batches:,} batches"),
            Fact("lag", f"{lag.seconds:.0f} s"),
        ]
        return Section(
            queue.title, facts, TableView(("sequence", "batch object"), rows, frozenset({0}), "Nothing waits.")
        )

    async def _documents_page(self, tenant: str) -> list[Section]:
        sections = []
        for index, entries in await self._entries(tenant):
            rows = [
                (entry.key, _status(entry), f"{entry.report.chunks:,}" if entry.report else "–", _reason(entry))
                for entry in entries[:_ROWS_MAX]
            ]
            table = TableView(("key", "status", "chunks", "reason"), rows, frozenset({2}))
            sections.append(Section(f"Index {index}", [Fact("documents", f"{len(entries):,}")], table))
        return sections or [Section("Documents", table=TableView((), (), empty="Nothing was indexed yet."))]

    async def _entries(self, tenant: str) -> list[tuple[str, list[DocumentEntry]]]:
        """The documents of the tenant, by index."""
        found = []
        try:
            reader = await self.documents.index.reader()
            for name in await reader.collections():
                subject = subject_of(name)
                if subject is not None and subject.tenant == tenant:
                    registry = await reader.collection(name.tenant, name.index, name.model)
                    found.append((subject.index, await list_entries(registry)))
        except NotFound:
            return found
        return found


def _job_stage(status: ChildStatus) -> Stage:
    state = StageState.OK if status.state == "running" else StageState.DOWN
    facts = [Fact("state", status.state), Fact("restarts", f"{status.restarts:,}")]
    error = "" if status.state == "running" else next(reversed(status.last_lines), "")
    return Stage(f"Job {status.name}", state, facts, error, page="jobs")


def _job_section(status: ChildStatus) -> Section:
    facts = [
        Fact("state", status.state),
        Fact("process", str(status.pid or "–")),
        Fact("restarts", f"{status.restarts:,}"),
        Fact("last exit code", "–" if status.last_exit is None else str(status.last_exit)),
    ]
    lines = [(line,) for line in status.last_lines]
    return Section(f"Job {status.name}", facts, TableView(("last lines",), lines, empty="It has written nothing."))


def _status(entry: DocumentEntry) -> str:
    if entry.pending is not None:
        return "indexing"
    if entry.state.tombstone:
        return "removed"
    return str(entry.report.status) if entry.report else "queued"


def _reason(entry: DocumentEntry) -> str:
    return (entry.report.reason or "") if entry.report else ""


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError("the last unit is returned")
