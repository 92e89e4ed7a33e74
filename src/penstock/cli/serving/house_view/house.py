"""The view of one process of `penstock serve`. Parts that do not run here are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.cli.serving.house_view.catalog_page import KeptCatalog, catalog_sections
from penstock.cli.serving.house_view.cost_page import cost_sections
from penstock.cli.serving.house_view.documents_page import DocumentsView
from penstock.cli.serving.house_view.edge_page import edge_sections
from penstock.cli.serving.house_view.events import EventBoard
from penstock.cli.serving.house_view.figures import FigureHistory
from penstock.cli.serving.house_view.jobs_page import job_sections
from penstock.cli.serving.house_view.path import DOCUMENTS, TELEMETRY, PathStages
from penstock.cli.serving.house_view.queue_page import QueueView, queue_sections
from penstock.cli.serving.house_view.stores_page import store_sections
from penstock.cli.serving.supervisor import Supervisor
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import NotFound, PenstockError
from penstock.gateway import DocumentChange, PageLink, Section, ShownEvent, Stage, Viewer
from penstock.indexing import SOURCE
from penstock.observability import names
from penstock.quiver import Quiver

__all__ = ["ServedHouse"]

_PAGES: Final = (
    PageLink("edge", "Edge"),
    PageLink("queue", "Queue"),
    PageLink("stores", "Stores", for_admin=True),
    PageLink("documents", "Documents"),
    PageLink("catalog", "Catalog", for_admin=True),
    PageLink("jobs", "Jobs", for_admin=True),
    PageLink("cost", "Cost"),
)


@dataclass
class ServedHouse:
    """A `HouseView`."""

    documents: DocumentsView
    queue: QueueView
    supervisor: Supervisor
    figures: FigureHistory
    board: EventBoard
    edge: Quiver | None = None
    telemetry_queue: QueueView | None = None
    catalog: KeptCatalog | None = None
    clock: Clock = SYSTEM_CLOCK
    pages: Sequence[PageLink] = _PAGES

    async def stages(self, viewer: Viewer) -> list[Stage]:
        made = PathStages(self.figures, self.board, viewer)
        jobs = {status.name: made.job(status, self.clock.now_ms()) for status in self.supervisor.statuses}
        found = [made.gateway(takes_rows=self.edge is not None)]
        if self.edge is not None:
            found.append(made.edge(self.edge))
        if self.telemetry_queue is not None:
            found.append(await made.queue(self.telemetry_queue, TELEMETRY))
        found += [jobs.pop(name) for name in ("telemetry",) if name in jobs]
        if self.catalog is not None:
            found.append(made.answers())
        found.append(await made.queue(self.queue, DOCUMENTS))
        found += [jobs.pop(name) for name in ("index",) if name in jobs]
        found.append(made.documents(await self.documents.indexes(viewer.tenant)))
        return [*found, *jobs.values()]

    async def page(self, name: str, viewer: Viewer, choice: Mapping[str, str]) -> list[Section]:
        if name == "edge":
            return edge_sections(self.edge)
        if name == "queue":
            queues = [one for one in (self.telemetry_queue, self.queue) if one is not None]
            return [section for queue in queues for section in await queue_sections(queue)]
        if name == "stores":
            return store_sections(self.figures, await self._positions())
        if name == "documents":
            return await self.documents.sections(viewer, choice)
        if name == "catalog":
            return await catalog_sections(self.catalog, self.figures, self.clock)
        if name == "cost":
            sections = cost_sections(self.figures, await self.documents.indexes(viewer.tenant))
            return sections if viewer.is_admin else sections[:1]
        return job_sections(self.supervisor.statuses, self.clock.now_ms())

    async def events(self, viewer: Viewer, after: int) -> list[ShownEvent]:
        return self.board.shown(viewer, after)

    async def change_documents(self, change: DocumentChange, index: str, keys: Sequence[str], viewer: Viewer) -> int:
        return await self.documents.change(change, index, keys, viewer)

    async def position(self) -> int | None:
        """How far the index has stored the queue of documents."""
        try:
            return await (await self.documents.services.index.reader()).position(SOURCE)
        except NotFound:
            return None

    async def _positions(self) -> list[tuple[str, str]]:
        try:
            documents = await self.position()
        except PenstockError as error:
            return [("vectors", str(error))]
        landed = self.figures.total(names.LANDING_POSITION, "telemetry")
        has_landed = "telemetry" in self.figures.processes and landed
        return [
            ("vectors: documents queue", "–" if documents is None else f"sequence {documents:,}"),
            ("series and data files: telemetry queue", f"sequence {landed:,.0f}" if has_landed else "–"),
        ]
