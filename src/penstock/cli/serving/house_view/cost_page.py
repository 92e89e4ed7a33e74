"""What running it costs: embedding by index, and requests and bytes of the object store since the start."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.cli.serving.house_view.documents_page import IndexEntries
from penstock.cli.serving.house_view.figures import FigureHistory
from penstock.cli.serving.house_view.units import byte_text, rate_text
from penstock.gateway import Fact, Section, TableView
from penstock.observability import names

__all__ = ["cost_sections"]


def cost_sections(figures: FigureHistory, indexes: Sequence[IndexEntries]) -> list[Section]:
    return [_embedding(indexes), _requests(figures), _bytes(figures)]


def _embedding(indexes: Sequence[IndexEntries]) -> Section:
    rows = []
    dollars = 0.0
    for index in indexes:
        reports = [entry.report for entry in index.entries if entry.report is not None]
        cost = sum(report.cost_usd for report in reports)
        dollars += cost
        chunks, tokens = sum(report.chunks for report in reports), sum(report.tokens for report in reports)
        reused = sum(report.reused for report in reports)
        counts = [f"{count:,}" for count in (len(index.entries), chunks, reused, tokens)]
        rows.append((index.name.index, index.name.model, *counts, f"{cost:,.4f}"))
    columns = ("index", "model", "documents", "chunks", "reused chunks", "tokens", "US dollars")
    note = (
        "Prices are those of the model's profile. The built-in model costs nothing; reused chunks are not sent again."
    )
    table = TableView(columns, rows, frozenset(range(2, 7)), "No documents are indexed yet.")
    return Section("Embedding of the documents that are indexed", [Fact("total", f"${dollars:,.4f}")], table, note=note)


def _requests(figures: FigureHistory) -> Section:
    rows = [
        (
            process,
            verb,
            f"{count:,.0f}",
            rate_text(figures.rate(names.OBJECTS_REQUESTS, process, verb=verb), "requests"),
            f"{figures.total(names.OBJECTS_RETRIES, process, verb=verb):,.0f}",
        )
        for process in figures.processes
        for verb, count in figures.by_label(names.OBJECTS_REQUESTS, "verb", process).items()
    ]
    columns = ("process", "verb", "requests", "now", "retries")
    note = "Counted since each process was started. The key-value stores' own requests are not among them."
    table = TableView(columns, rows, frozenset({2, 3, 4}), "No requests were sent yet.")
    return Section("Requests to the object store", table=table, note=note)


def _bytes(figures: FigureHistory) -> Section:
    rows = [
        (process, direction, byte_text(count))
        for process in figures.processes
        for direction, count in figures.by_label(names.OBJECTS_BYTES, "direction", process).items()
    ]
    table = TableView(("process", "direction", "bytes"), rows, frozenset({2}), "No bytes were moved yet.")
    return Section("Bytes to and from the object store", table=table)
