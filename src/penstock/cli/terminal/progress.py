"""How a running job is shown: a bar while it works, and a summary at the end, for a person or as JSON."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from penstock.cli.terminal.terminal_text import terminal_text
from penstock.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from penstock.indexing import IndexingSummary

__all__ = ["Elapsed", "ProgressView", "summary_fields", "summary_lines"]


_BAR_COLUMNS: Final = 24
# What all figures take beside a bar of that width; a narrower terminal gets the bar and fewer figures.
_WIDE_COLUMNS: Final = 132


class Elapsed(NamedTuple):
    """How long a command took, and how much of it passed before Spark was there."""

    seconds: float
    start_seconds: float = 0.0

    def rate(self, count: int) -> float:
        """Per second of work."""
        return count / max(self.seconds - self.start_seconds, 1e-3)


class ProgressView:
    """A bar of documents, with chunks, tokens, rate and time left. Shows nothing on a quiet console."""

    def __init__(self, console: Console, documents: int, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """`documents` are known to wait; the job may find more."""
        self._expected = documents
        self._clock = clock
        self._opened = self._began = clock.monotonic()
        self._wide = console.width >= _WIDE_COLUMNS
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=_BAR_COLUMNS),
            TextColumn("{task.completed:,}/{task.total:,} documents  {task.fields[figures]}"),
            *((TimeElapsedColumn(),) if self._wide else ()),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
            # Where nobody watches, the summary is enough.
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=documents, figures="")

    @property
    def elapsed(self) -> Elapsed:
        return Elapsed(self._clock.monotonic() - self._opened, self._began - self._opened)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()

    def working(self, what: str = "indexing") -> None:
        """The engine is there: what takes time from now on is work."""
        self._began = self._clock.monotonic()
        self._bar.reset(self._task, description=what, total=self._expected, figures="")

    def show(self, summary: IndexingSummary) -> None:
        done = summary.documents + len(summary.set_aside) + summary.unchanged
        figures = f"{summary.chunks:,} chunks"
        if self._wide:
            figures += f"  {summary.tokens:,} tokens  {self.elapsed.rate(summary.chunks):,.0f} chunks/s"
        total = max(self._expected, done + summary.pending)
        self._bar.update(self._task, completed=done, total=total, figures=figures)


def summary_lines(summary: IndexingSummary, elapsed: Elapsed) -> list[str]:
    """What a job has done, and what became of the documents that it could not make searchable."""
    aside = [terminal_text(f"  warning: {key}: {warning}") for key, warning in summary.warned]
    if summary.with_warnings > len(summary.warned):
        aside.append(f"  … and {summary.with_warnings - len(summary.warned):,} more: see `penstock documents list`")
    aside += [terminal_text(f"  {status}: {key}: {reason}") for key, status, reason in summary.set_aside]
    aside += [terminal_text(f"  waits: {key}: {reason}") for key, reason in summary.waiting]
    if summary.held > len(summary.waiting):
        aside.append(f"  … and {summary.held - len(summary.waiting):,} more wait: see `penstock documents list`")
    return [*aside, f"documents: {_documents(summary)}", f"chunks:    {_chunks(summary)}", _time(summary, elapsed)]


def _documents(summary: IndexingSummary) -> str:
    told = (
        f"{summary.documents:,} indexed, {summary.deleted:,} removed, {summary.unchanged:,} unchanged, "
        f"{len(summary.set_aside):,} set aside"
    )
    if summary.pending:
        told += f", {summary.pending:,} still to do"
    if summary.held:
        told += f", {summary.held:,} of them because their buckets do not answer: the next run tries them again"
    if summary.with_warnings:
        told += f", {summary.with_warnings:,} with warnings"
    if summary.refused:
        told += f"; {summary.refused:,} records refused: no notifications, or of a model or index that cannot be used"
    return told


def _chunks(summary: IndexingSummary) -> str:
    told = f"{summary.chunks:,} written"
    if summary.reused:
        told += f" ({summary.reused:,} embedded before)"
    if summary.words_only:
        told += f" ({summary.words_only:,} that only their words find)"
    told += f", {summary.tokens:,} tokens"
    return told + (f", ${summary.cost_usd:.4f}" if summary.cost_usd else "")


def _time(summary: IndexingSummary, elapsed: Elapsed) -> str:
    start = f", of which {elapsed.start_seconds:.1f} s to start" if elapsed.start_seconds else ""
    return f"time:      {elapsed.seconds:.1f} s{start} ({elapsed.rate(summary.chunks):,.0f} chunks/s)"


def summary_fields(summary: IndexingSummary, elapsed: Elapsed) -> dict[str, Any]:
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
        "seconds": round(elapsed.seconds, 3),
        "start_seconds": round(elapsed.start_seconds, 3),
    }
