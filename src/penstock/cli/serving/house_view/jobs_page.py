"""The jobs that the supervisor keeps running."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli.serving.house_view.units import seconds_text
from penstock.cli.serving.supervisor import ChildStatus
from penstock.gateway import Fact, Section, TableView

__all__ = ["job_sections"]


def job_sections(statuses: Sequence[ChildStatus], now_ms: int) -> list[Section]:
    if not statuses:
        return [Section("Jobs", table=TableView((), (), empty="No jobs run in this process."))]
    return [_section(status, now_ms) for status in statuses]


def _section(status: ChildStatus, now_ms: int) -> Section:
    since = seconds_text(max(0, now_ms - status.since_ms) / 1000) if status.since_ms else "–"
    state = "stopped by a signal" if status.is_stopped else status.state
    facts = [
        Fact("state", f"{state} for {since}" if status.since_ms and not status.is_stopped else state),
        Fact("process", str(status.pid or "–")),
        Fact("restarts", f"{status.restarts:,}"),
        Fact("last exit code", "–" if status.last_exit is None else str(status.last_exit)),
    ]
    lines = [(line,) for line in status.last_lines]
    return Section(f"Job {status.name}", facts, TableView(("last lines",), lines, empty="It has printed nothing."))
