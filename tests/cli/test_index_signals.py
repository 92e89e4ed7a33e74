"""`penstock index` ends in good order when it is interrupted at work, and the next run goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.testing.servers.embedding_server import Ask, EmbeddingServer

# Nobody here knows it: the command says what it takes, and the index remembers it.
MODEL = "model-of-somebody"
DIMENSIONS = 48
SECONDS_MAX = 300


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.integration)])
def test_ctrl_c_at_work_ends_with_a_summary_and_130_though_its_round_hangs_and_nothing_is_lost(
    tmp_path: Path, engine: str
) -> None:
    (tmp_path / "shelf").mkdir()
    for number in range(4):
        (tmp_path / "shelf" / f"{number}.txt").write_text(f"Document {number} tells of otters and rivers.")
    running: list[subprocess.Popen[str]] = []
    over = threading.Event()

    def on_ask(_: Ask) -> None:
        """The first request to the model is the moment to press Ctrl-C; it is not answered until the command has ended."""
        if running:
            # As a terminal does: to all processes of the command.
            os.killpg(running.pop().pid, signal.SIGINT)
            over.wait(SECONDS_MAX)

    penstock = [sys.executable, "-m", "penstock.cli"]
    with EmbeddingServer(dimensions=DIMENSIONS, on_ask=on_ask) as server:
        command = [*penstock, "index", "shelf", "--model", MODEL, "--embedding-url", server.url, "--engine", engine]
        command += ["--dimensions", str(DIMENSIONS), "--input-tokens", "512", "--price", "2.5"]
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        running.append(process)
        try:
            out, err = process.communicate(timeout=SECONDS_MAX)
        finally:
            over.set()
        # Not a word of Spark's own, of which there are many: they are in the log beside the checkpoint.
        assert (process.returncode, err) == (130, "")
        assert (tmp_path / "penstock-data" / "checkpoint.log").exists() == (engine == "spark")
        assert out.index("ending") < out.index("4 still to do") < out.index("nothing is lost")
        # What was begun is done without naming a path, a model or its endpoint again.
        again = subprocess.run(
            [*penstock, "index", "--engine", "local"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert again.returncode == 0, again.stderr
        found = subprocess.run(
            [*penstock, "search", "rivers", "--json"], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout
        assert len(found.splitlines()) == 4
    listed = subprocess.run(
        [*penstock, "documents", "list", "--json"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert [json.loads(line)["status"] for line in listed.splitlines()] == ["indexed"] * 4
    # And nothing waits any more.
    queue = ["buffer", "inspect", f"file://{tmp_path / 'penstock-data'}"]
    inspected = subprocess.run([*penstock, *queue], capture_output=True, text=True, check=True).stdout
    assert "queued        0 batches" in inspected


# Stands in for Spark at its start: asks the command that waits for it to end, as a terminal or a supervisor does, and
# never comes up. It ends with its standard input, as Spark does.
ASKING = """#!/bin/sh
kill -s {signal} -- -$PPID
exec cat > /dev/null
"""


@pytest.mark.parametrize(
    ("number", "follow", "code"),
    [("INT", False, 130), ("TERM", False, 143), ("INT", True, 0), ("TERM", True, 0)],
)
def test_a_signal_while_spark_starts_ends_the_command_at_once_with_the_documented_code(
    tmp_path: Path, number: str, *, follow: bool, code: int
) -> None:
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "note.txt").write_text("Otters live in rivers.")
    submit = tmp_path / "spark" / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    submit.write_text(ASKING.format(signal=number))
    submit.chmod(0o755)
    ended = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "index", "shelf", *(["--follow"] if follow else [])],
        cwd=tmp_path,
        env={**os.environ, "SPARK_HOME": str(tmp_path / "spark")},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        start_new_session=True,
    )
    assert (ended.returncode, ended.stderr) == (code, "")
    listed, answer, last = ended.stdout.splitlines()
    assert listed.startswith("1 to index")
    assert answer.startswith("ending")
    assert "nothing is lost" in last
