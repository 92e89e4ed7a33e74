"""A summary tells what was done, what was not, and how fast, for a person and for a program."""

from __future__ import annotations

import io

from rich.console import Console

from penstock.cli.terminal.progress import Elapsed, ProgressView, summary_fields, summary_lines
from penstock.documents import DocumentReport, DocumentStatus
from penstock.indexing.job.summary import IndexingSummary
from penstock.testing import ManualClock

SUMMARY = IndexingSummary(
    documents=3, chunks=1200, tokens=90_000, cost_usd=0.5, deleted=1, set_aside=[("a.pdf", "quarantined", "broken")]
)


def test_documents_and_chunks_are_counted_apart_and_what_was_set_aside_is_named() -> None:
    assert summary_lines(SUMMARY, Elapsed(15.0, 3.0)) == [
        "  quarantined: a.pdf: broken",
        "documents: 3 indexed, 1 removed, 0 unchanged, 1 set aside",
        "chunks:    1,200 written, 90,000 tokens, $0.5000",
        "time:      15.0 s, of which 3.0 s to start (100 chunks/s)",
    ]


def test_what_is_left_and_what_was_refused_is_told_only_when_there_is_some() -> None:
    summary = IndexingSummary(pending=7, refused=2, chunks=9, reused=5)
    documents, chunks, _ = summary_lines(summary, Elapsed(1.0))
    assert "7 still to do" in documents
    assert "2 records refused" in documents
    assert "9 written (5 embedded before)" in chunks


def test_the_fields_are_those_of_the_summary_and_the_time_includes_the_start() -> None:
    fields = summary_fields(SUMMARY, Elapsed(12.0, 4.0))
    assert fields["set_aside"] == [{"key": "a.pdf", "status": "quarantined", "reason": "broken"}]
    assert (fields["documents"], fields["chunks"]) == (3, 1200)
    assert (fields["seconds"], fields["start_seconds"]) == (12.0, 4.0)


def test_the_time_of_a_run_begins_before_spark_does() -> None:
    clock = ManualClock()
    with ProgressView(Console(file=io.StringIO(), quiet=True), 1, clock=clock) as view:
        clock.advance(20)
        view.working()
        clock.advance(5)
    assert view.elapsed == Elapsed(25.0, 20.0)


def test_a_bar_in_80_columns_is_wide_enough_to_see_it_grow() -> None:
    clock, written = ManualClock(), io.StringIO()
    console = Console(file=written, force_terminal=True, width=80, color_system=None)
    with ProgressView(console, 4000, clock=clock) as view:
        view.working("reindexing")
        clock.advance(6)
        view.show(IndexingSummary(documents=4000, chunks=1_234_567, tokens=90_000_000))
        view._bar.refresh()
    last = written.getvalue().replace("\r", "\n").splitlines()
    assert max(line.count("━") + line.count("╸") + line.count("╺") for line in last) >= 16
    assert max(map(len, last)) <= 90


def test_the_bar_shows_documents_chunks_tokens_and_the_rate_since_spark_was_there() -> None:
    clock, written = ManualClock(), io.StringIO()
    console = Console(file=written, force_terminal=True, width=200)
    with ProgressView(console, 4, clock=clock) as view:
        clock.advance(30)
        view.working()
        clock.advance(6)
        view.show(SUMMARY)
    shown = written.getvalue()
    for text in ("starting", "4/4 documents", "1,200 chunks", "90,000 tokens", "200 chunks/s"):
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
    *lines, last, _, _ = summary_lines(summary, Elapsed(1.0))
    assert lines[0] == "  warning: 0.txt: 3 bytes of [0, 9) are not UTF-8"
    assert (len(lines), lines[-1]) == (21, "  … and 5 more: see `penstock documents list`")
    assert "25 with warnings" in last
    assert summary_fields(summary, Elapsed(1.0))["warned"][0] == {"key": "0.txt", "warning": warnings[0]}
