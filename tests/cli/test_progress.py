"""A summary tells what was done, what was not, and how fast, for a person and for a program."""

from __future__ import annotations

import io

from rich.console import Console

from penstock.cli.progress import ProgressView, summary_fields, summary_lines
from penstock.documents import DocumentReport, DocumentStatus
from penstock.pipelines.indexer import IndexingSummary
from penstock.testing import ManualClock

SUMMARY = IndexingSummary(
    documents=3, chunks=1200, tokens=90_000, cost_usd=0.5, deleted=1, set_aside=[("a.pdf", "quarantined", "broken")]
)


def test_the_last_line_counts_and_the_lines_before_name_what_was_set_aside() -> None:
    aside, last = summary_lines(SUMMARY, 12.0)
    assert aside == "  quarantined: a.pdf: broken"
    assert last.startswith("3 documents, 1,200 chunks, 90,000 tokens, 1 removed, 0 unchanged, 1 set aside, $0.5000")
    assert last.endswith("in 12.0 s (100 chunks/s)")


def test_what_is_left_and_what_was_refused_is_told_only_when_there_is_some() -> None:
    summary = IndexingSummary(pending=7, refused=2, chunks=9, reused=5)
    assert "7 still to do" in summary_lines(summary, 1.0)[-1]
    assert "2 records refused" in summary_lines(summary, 1.0)[-1]
    assert "9 chunks (5 embedded before)" in summary_lines(summary, 1.0)[-1]


def test_the_fields_are_those_of_the_summary() -> None:
    fields = summary_fields(SUMMARY, 12.0)
    assert fields["set_aside"] == [{"key": "a.pdf", "status": "quarantined", "reason": "broken"}]
    assert (fields["documents"], fields["chunks"], fields["seconds"]) == (3, 1200, 12.0)


def test_the_bar_shows_documents_chunks_tokens_and_the_rate_since_spark_was_there() -> None:
    clock, written = ManualClock(), io.StringIO()
    console = Console(file=written, force_terminal=True, width=200)
    with ProgressView(console, 4, clock=clock) as view:
        clock.advance(30)
        view.working()
        clock.advance(6)
        view.show(SUMMARY)
    shown = written.getvalue()
    for text in ("starting Spark", "4/4 documents", "1,200 chunks", "90,000 tokens", "200 chunks/s"):
        assert text in shown


def test_a_quiet_console_shows_nothing() -> None:
    written = io.StringIO()
    with ProgressView(Console(file=written, quiet=True), 4) as view:
        view.working()
        view.show(SUMMARY)
    assert written.getvalue() == ""


def test_documents_with_warnings_are_counted_and_the_first_are_named() -> None:
    summary = IndexingSummary()
    warnings = ("3 bytes of [0, 9) are not UTF-8", "another")
    for number in range(25):
        report = DocumentReport(doc_id=f"{number}", status=DocumentStatus.INDEXED, chunks=1, warnings=warnings)
        summary.add(f"{number}.txt", report)
    *lines, last = summary_lines(summary, 1.0)
    assert lines[0] == "  warning: 0.txt: 3 bytes of [0, 9) are not UTF-8"
    assert (len(lines), lines[-1]) == (21, "  … and 5 more: see `penstock documents list`")
    assert "25 with warnings" in last
    assert summary_fields(summary, 1.0)["warned"][0] == {"key": "0.txt", "warning": warnings[0]}
