"""The path of a record as stages: what passes each now, how far it is behind, and what went wrong there last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.cli.serving.house_view.documents_page import IndexEntries
from penstock.cli.serving.house_view.events import EventBoard
from penstock.cli.serving.house_view.figures import FigureHistory
from penstock.cli.serving.house_view.queue_page import QueueView
from penstock.cli.serving.house_view.units import byte_text, counted, rate_text, seconds_text
from penstock.cli.serving.supervisor import ChildStatus
from penstock.errors import PenstockError
from penstock.gateway import Fact, Stage, StageState, Viewer
from penstock.observability import Metric, names
from penstock.quiver import Quiver

__all__ = ["DOCUMENTS", "TELEMETRY", "UPKEEP", "PathStages"]

TELEMETRY: Final = "Telemetry"
DOCUMENTS: Final = "Documents"
UPKEEP: Final = "Upkeep"

# Behind by more than this is shown as late.
_LATE_SECONDS: Final = 60.0
_HIDDEN: Final = "See the log of the server."
_TRANSIENT: Final = ("starting", "waiting")


@dataclass(frozen=True)
class PathStages:
    """What the stages are made from. Errors quote logs, which name documents: only administrators see them."""

    figures: FigureHistory
    events: EventBoard
    viewer: Viewer

    def gateway(self, *, takes_rows: bool) -> Stage:
        """A process that only answers takes no rows, and shows requests alone."""
        facts: list[Fact] = []
        # Else the state follows the rate.
        state: StageState | None = None
        if self.figures.total(names.GATEWAY_TOKENS_REFUSED):
            state = StageState.ATTENTION
            facts += [Fact("token file", "cannot be used")] if self.viewer.is_admin else []
        if not takes_rows:
            return self._stage(
                "Gateway", TELEMETRY, facts, names.GATEWAY_REQUESTS, "requests", ("gateway.",), state=state
            )
        refused = self.figures.total(names.GATEWAY_REJECTED_ROWS)
        facts += [
            Fact("requests", rate_text(self.figures.rate(names.GATEWAY_REQUESTS), "requests")),
            Fact("acknowledged", counted(self.figures.total(names.GATEWAY_ROWS), "row")),
            Fact("refused", counted(refused, "row")),
        ]
        return self._stage("Gateway", TELEMETRY, facts, names.GATEWAY_ROWS, "rows", ("gateway.",), state=state)

    def edge(self, edge: Quiver) -> Stage:
        state = edge.state
        waiting = max((state.lag(name) for name in state.subscriptions), default=0)
        stalled = self.figures.total(names.RELAY_STALLED_SECONDS)
        lost = self.figures.total(names.QUIVER_ROWS_LOST)
        facts = [
            Fact("segments waiting", f"{waiting:,}"),
            Fact("on disk", byte_text(edge.stored_bytes)),
            Fact("in memory", byte_text(edge.open_bytes)),
        ]
        if stalled:
            facts.append(Fact("stalled for", seconds_text(stalled)))
        busy = StageState.OK if waiting or edge.open_bytes else StageState.IDLE
        found = StageState.LOST if lost else StageState.LATE if stalled > _LATE_SECONDS else busy
        return self._stage(
            "Edge",
            TELEMETRY,
            facts,
            names.RELAY_ROWS,
            "rows",
            ("quiver.", "relay."),
            state=found,
            page="edge",
            lost=f"{lost:,.0f} rows" if lost else "",
        )

    async def queue(self, queue: QueueView, lane: str) -> Stage:
        batches, seconds, letters = 0, 0.0, 0
        try:
            shards = await queue.shards()
            for shard in shards:
                manifest, _, lag = await shard.read()
                batches, seconds = batches + lag.batches, max(seconds, lag.seconds)
                letters += len(await shard.dead_letters(manifest))
        except PenstockError as error:
            return Stage(queue.title, StageState.DOWN, error=self._error(str(error)), page="queue", lane=lane)
        state = StageState.ATTENTION if letters else StageState.OK if batches else StageState.IDLE
        state = StageState.LATE if seconds > _LATE_SECONDS else state
        facts = [Fact("waiting", counted(batches, "batch", "batches")), Fact("lag", seconds_text(seconds))]
        if len(shards) > 1:
            facts.append(Fact("shards", f"{len(shards):,}"))
        if letters:
            facts.append(Fact("dead letters", f"{letters:,}"))
        return Stage(queue.title, state, facts, "", "queue", lane)

    def job(self, status: ChildStatus, now_ms: int) -> Stage:
        lane, metric, unit, prefixes, facts = self._work_of(status.name)
        is_failing = status.is_failing(now_ms)
        state = StageState.OK if status.state == "running" and not is_failing else StageState.DOWN
        if status.state in _TRANSIENT and not status.restarts:
            state = StageState.IDLE
        facts = [*facts, Fact("restarts", f"{status.restarts:,}")]
        error = "" if state is not StageState.DOWN else status.last_error or "It has ended."
        if is_failing and status.state == "running":
            times = f"{status.failures:,} times in a row" if status.failures > 1 else "and was started again"
            error = f"It ended {times}: {error}"
        if status.state == "running" and status.is_stopped:
            state, error = StageState.DOWN, f"It was stopped by a signal; `kill -CONT {status.pid}` lets it go on."
        error = error or self.events.last_bad(prefixes, status.name)
        rate = rate_text(self.figures.rate(metric), unit)
        title = {"index": "Indexing job", "telemetry": "Telemetry job", "compact": "Compaction job"}
        return Stage(
            title.get(status.name, f"Job {status.name}"),
            state,
            facts,
            self._error(error),
            "jobs" if self.viewer.is_admin else "",
            lane,
            rate,
            self.figures.curve(metric),
        )

    def _work_of(self, job: str) -> tuple[str, Metric, str, tuple[str, ...], list[Fact]]:
        total = self.figures.total
        if job == "index":
            facts = [
                Fact("backlog", counted(total(names.INDEXING_BACKLOG_DOCUMENTS), "document")),
                Fact("lag", seconds_text(total(names.INDEXING_LAG_SECONDS))),
            ]
            return (
                DOCUMENTS,
                names.INDEXING_CHUNKS,
                "chunks",
                ("indexing.", "vector.", "buffer.", "coordinator."),
                facts,
            )
        if job == "telemetry":
            aside = total(names.LANDING_QUARANTINED_ROWS)
            facts = [
                Fact("rows landed", f"{total(names.LANDING_ROWS):,.0f}"),
                *([Fact("rows put aside", f"{aside:,.0f}")] if aside else []),
            ]
            prefixes = ("landing.", "timeseries.", "catalog.", "buffer.", "coordinator.")
            return TELEMETRY, names.LANDING_ROWS, "rows", prefixes, facts
        merges = sum(self.figures.by_label(names.COMPACTION_TASKS, "outcome").values())
        return UPKEEP, names.COMPACTION_ROWS, "rows", ("compaction.", "catalog."), [Fact("merges", f"{merges:,.0f}")]

    def answers(self) -> Stage:
        """Where telemetry can be queried."""
        facts = [
            Fact("PromQL", rate_text(self._count_rate(names.TIMESERIES_QUERY_SECONDS), "queries")),
            Fact("SQL", rate_text(self.figures.rate(names.SQL_QUERIES), "queries")),
        ]
        page = "catalog" if self.viewer.is_admin else ""
        return Stage("Catalog and series", StageState.OK, facts, "", page, TELEMETRY)

    def documents(self, indexes: Sequence[IndexEntries]) -> Stage:
        states: Counter[str] = sum((index.counted() for index in indexes), Counter())
        aside = states["quarantined"]
        state = StageState.ATTENTION if aside else StageState.OK if states else StageState.IDLE
        facts = [Fact(name, f"{count:,}") for name, count in sorted(states.items())] or [Fact("indexed", "0")]
        error = f"{counted(aside, 'document')} could not be read" if aside else ""
        return Stage("Indexes", state, facts, error, "documents", DOCUMENTS)

    def _stage(
        self,
        title: str,
        lane: str,
        facts: Sequence[Fact],
        metric: Metric,
        unit: str,
        prefixes: tuple[str, ...],
        *,
        state: StageState | None = None,
        page: str = "",
        lost: str = "",
    ) -> Stage:
        rate = self.figures.rate(metric)
        found = state or (StageState.OK if rate else StageState.IDLE)
        error = self._error(self.events.last_bad(prefixes, "serve"))
        curve = self.figures.curve(metric)
        return Stage(title, found, facts, error, page, lane, rate_text(rate, unit), curve, lost)

    def _count_rate(self, histogram: Metric) -> float:
        return self.figures.rate(Metric(f"{histogram.name}_count", histogram.kind, ""))

    def _error(self, text: str) -> str:
        return text if self.viewer.is_admin or not text else _HIDDEN
