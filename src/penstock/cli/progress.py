"""How a running job is shown: a bar while it works, and a summary at the end, for a person or as JSON."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from penstock.cli.plain import plain
from penstock.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from penstock.pipelines.indexer import IndexingSummary

__all__ = ["ProgressView", "summary_fields", "summary_lines"]


class ProgressView:
    """A bar of documents, with chunks, tokens, rate and time left. Shows nothing on a quiet console."""

    def __init__(self, console: Console, documents: int, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """`documents` are known to wait; the job may find more."""
        self._expected = documents
        self._clock = clock
        self._began = clock.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:,}/{task.total:,} documents  {task.fields[figures]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            # Where nobody watches, the summary is enough.
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting Spark", total=documents, figures="")

    @property
    def seconds(self) -> float:
        return self._clock.monotonic() - self._began

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()

    def working(self, what: str = "indexing") -> None:
        """Spark is there: what takes time from now on is work."""
        self._began = self._clock.monotonic()
        self._bar.reset(self._task, description=what, total=self._expected, figures="")

    def show(self, summary: IndexingSummary) -> None:
        done = summary.documents + len(summary.set_aside) + summary.unchanged
        rate = summary.chunks / max(self.seconds, 1e-3)
        figures = f"{summary.chunks:,} chunks  {summary.tokens:,} tokens  {rate:,.0f} chunks/s"
        total = max(self._expected, done + summary.pending)
        self._bar.update(self._task, completed=done, total=total, figures=figures)


def summary_lines(summary: IndexingSummary, seconds: float) -> list[str]:
    """What a job has done, and what became of the documents that it could not make searchable."""
    rate = summary.chunks / max(seconds, 1e-3)
    reused = f" ({summary.reused:,} embedded before)" if summary.reused else ""
    told = (
        f"{summary.documents:,} documents, {summary.chunks:,} chunks{reused}, {summary.tokens:,} tokens, "
        f"{summary.deleted:,} removed, {summary.unchanged:,} unchanged, {len(summary.set_aside):,} set aside"
    )
    if summary.cost_usd:
        told += f", ${summary.cost_usd:.4f}"
    if summary.refused:
        told += f", {summary.refused:,} records refused that are no notifications"
    if summary.pending:
        told += f", {summary.pending:,} still to do"
    if summary.held:
        told += f", {summary.held:,} of them because their buckets do not answer: the next run tries them again"
    if summary.words_only:
        told += f", {summary.words_only:,} chunks that only their words find"
    if summary.with_warnings:
        told += f", {summary.with_warnings:,} with warnings"
    aside = [plain(f"  warning: {key}: {warning}") for key, warning in summary.warned]
    if summary.with_warnings > len(summary.warned):
        aside.append(f"  … and {summary.with_warnings - len(summary.warned):,} more: see `penstock documents list`")
    aside += [plain(f"  {status}: {key}: {reason}") for key, status, reason in summary.set_aside]
    aside += [plain(f"  waits: {key}: {reason}") for key, reason in summary.waiting]
    if summary.held > len(summary.waiting):
        aside.append(f"  … and {summary.held - len(summary.waiting):,} more wait: see `penstock documents list`")
    return [*aside, f"{told} in {seconds:.1f} s ({rate:,.0f} chunks/s)"]


def summary_fields(summary: IndexingSummary, seconds: float) -> dict[str, Any]:
    return {
        "documents": summary.documents,
        "chunks": summary.chunks,
        "reused": summary.reused,
        "words_only": summary.words_only,
        "tokens": summary.tokens,
        "cost_usd": summary.cost_usd,
        "deleted": summary.deleted,
        "unchanged": summary.unchanged,
        "refused": summary.refused,
        "pending": summary.pending,
        "waiting": [{"key": key, "reason": reason} for key, reason in summary.waiting],
        "set_aside": [{"key": key, "status": status, "reason": reason} for key, status, reason in summary.set_aside],
        "with_warnings": summary.with_warnings,
        "warned": [{"key": key, "warning": warning} for key, warning in summary.warned],
        "seconds": round(seconds, 3),
    }
