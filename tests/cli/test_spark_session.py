"""What Spark's processes print is kept in a log, and the terminal is given back at the end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.cli.running.spark_session import SparkRun, log_of


def test_what_spark_prints_goes_to_a_directory_store_or_to_a_place_that_no_listing_shows(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.log").write_text("of the run before")
    log = log_of(f"file://{tmp_path}")
    assert (log, log.exists()) == (tmp_path / "checkpoint.log", False)
    first, second = log_of("s3://bucket/a"), log_of("s3://bucket/a")
    try:
        assert first != second
        assert first.parent.name.startswith(".penstock-")
        assert Path.cwd() not in first.parents
    finally:
        first.parent.rmdir()
        second.parent.rmdir()


def _print_as_a_process_would(text: str) -> None:
    os.write(2, text.encode())


def test_once_hushed_errors_go_to_the_log_until_the_run_is_closed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "spark.log"
    run = SparkRun(None, log)
    _print_as_a_process_would("before\n")
    # The thread that hears a signal and the end of the session both ask for it.
    run.hush()
    run.hush()
    _print_as_a_process_would("a stack trace\n")
    run.close()
    _print_as_a_process_would("after\n")
    assert (capfd.readouterr().err, log.read_text()) == ("before\nafter\n", "a stack trace\n")


def test_a_signal_that_arrives_after_the_end_leaves_the_terminal_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = SparkRun(None, tmp_path / "spark.log")
    run.close()
    run.hush()
    _print_as_a_process_would("after\n")
    assert capfd.readouterr().err == "after\n"
