"""The stores that jobs write: epochs and watermarks of their coordinators, why they flush, and what readers see."""

from __future__ import annotations

from typing import Final

from penstock.cli.serving.house_view.figures import FigureHistory
from penstock.cli.serving.house_view.units import byte_text, rate_text
from penstock.gateway import Fact, Section, TableView
from penstock.observability import names

__all__ = ["store_sections"]

_MARKS: Final = ("applied", "flushed", "durable")


def store_sections(figures: FigureHistory, positions: list[tuple[str, str]]) -> list[Section]:
    """`positions` are how far each store has come, as readers of this process see it."""
    found = [Section("What readers see", table=TableView(("store", "stored through"), positions, frozenset({1})))]
    for process in figures.processes:
        for coordinator in figures.by_label(names.COORDINATOR_EPOCH, "coordinator", process):
            found += _coordinator(figures, process, coordinator)
    if len(found) == 1:
        empty = "No job of this process has a store open. It is shown a few seconds after the job has opened it."
        found.append(Section("Coordinators", table=TableView((), (), empty=empty)))
    return found


def _coordinator(figures: FigureHistory, process: str, name: str) -> list[Section]:
    epochs = figures.by_label(names.COORDINATOR_EPOCH, "mark", process, coordinator=name)
    flushes = figures.by_label(names.COORDINATOR_FLUSHES, "reason", process, coordinator=name)
    failures = figures.by_label(names.COORDINATOR_FAILURES, "outcome", process, coordinator=name)
    facts = [
        *[Fact(f"epoch {mark}", f"{epochs[mark]:,.0f}") for mark in _ordered(epochs)],
        Fact("pending", byte_text(figures.total(names.COORDINATOR_PENDING_BYTES, process, coordinator=name))),
        Fact("not yet durable", byte_text(figures.total(names.COORDINATOR_BUFFERED_BYTES, process, coordinator=name))),
        Fact("writes", rate_text(figures.rate(names.COORDINATOR_WRITES, process, coordinator=name), "writes")),
        Fact("failed flushes", ", ".join(f"{count:,.0f} {how}" for how, count in failures.items()) or "0"),
    ]
    rows = [(reason, f"{count:,.0f}") for reason, count in flushes.items()]
    table = TableView(("flush reason", "flushes"), rows, frozenset({1}), "Nothing was flushed since it was opened.")
    return [Section(f"{name} (job {process})", facts, table)]


def _ordered(epochs: dict[str, float]) -> list[str]:
    return sorted(epochs, key=lambda mark: (_MARKS.index(mark) if mark in _MARKS else len(_MARKS), mark))
