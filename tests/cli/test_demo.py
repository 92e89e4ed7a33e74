"""The demo counts honestly: it passes on what is exactly once, and fails on anything else."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli import penstock
from penstock.cli.demonstration.documents import DocumentsAct
from penstock.cli.demonstration.queue import QueueAct, _Count
from penstock.cli.demonstration.telemetry import TelemetryAct
from penstock.errors import PenstockError


@pytest.mark.integration
def test_the_demo_survives_its_own_kills_and_counts_every_record_once(tmp_path: Path) -> None:
    """The whole thing with real processes, as `make demo` runs it, on fewer records."""
    answer = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "demo", "--records", "4000", "--directory", str(tmp_path / "demo")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    # Once for the records, once for the telemetry and once for the documents.
    assert answer.stdout.splitlines().count("exactly once") == 3
    assert "fenced" in answer.stdout


@pytest.mark.parametrize(
    ("acknowledged", "stored", "lost", "doubled", "exactly_once"),
    [
        ([b"a", b"b"], [b"a", b"b"], 0, 0, True),
        ([b"a"], [b"a", b"landed-unheard"], 0, 0, True),
        ([b"a", b"b"], [b"a"], 1, 0, False),
        ([b"a"], [b"a", b"a"], 0, 1, False),
        ([], [], 0, 0, False),
    ],
)
def test_a_lost_or_doubled_record_fails_the_demo(
    acknowledged: list[bytes], stored: list[bytes], lost: int, doubled: int, exactly_once: bool
) -> None:
    count = _Count.of(acknowledged, stored)
    assert (count.lost, count.doubled, count.exactly_once) == (lost, doubled, exactly_once)


def test_the_demo_refuses_a_directory_that_holds_something_already(tmp_path: Path) -> None:
    answer = CliRunner().invoke(penstock, ["demo", "--directory", str(tmp_path)])
    assert answer.exit_code == 1
    assert "name a new directory" in answer.output


def test_a_step_that_takes_too_long_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(_: QueueAct) -> bool:
        raise subprocess.TimeoutExpired(["penstock", "index"], 900)

    monkeypatch.setattr(QueueAct, "run", hangs)
    answer = CliRunner().invoke(penstock, ["demo", "--directory", str(tmp_path / "demo")])
    assert answer.exit_code == 1
    assert "penstock index" in answer.output
    assert "900 s" in answer.output
    assert "Traceback" not in answer.output
    assert isinstance(answer.exception, SystemExit)


def test_what_a_failed_demo_names_is_still_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(act: QueueAct) -> bool:
        log = act._directory / "job.log"
        log.write_text("why")
        raise PenstockError("a job failed", remedy=f"read {log}")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(QueueAct, "run", fails)
    answer = CliRunner().invoke(penstock, ["demo"])
    assert answer.exit_code == 1
    (kept,) = tmp_path.iterdir()
    assert (kept / "job.log").read_text() == "why"
    assert f"its data stays in {kept}" in answer.output


def test_a_demo_that_passes_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for act, name in ((QueueAct, "run"), (TelemetryAct, "play"), (DocumentsAct, "play")):
        monkeypatch.setattr(act, name, lambda _: True)
    assert CliRunner().invoke(penstock, ["demo"]).exit_code == 0
    assert not list(tmp_path.iterdir())
