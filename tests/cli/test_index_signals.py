"""`penstock index` ends in good order when it is interrupted at work, and the next run goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing.embedding_server import Ask, EmbeddingServer

# Nobody here knows it: the command says what it takes, and the index remembers it.
MODEL = "model-of-somebody"
DIMENSIONS = 48
SECONDS_MAX = 300


@pytest.mark.integration
def test_ctrl_c_at_work_ends_with_a_summary_and_130_and_nothing_is_lost(tmp_path: Path) -> None:
    (tmp_path / "shelf").mkdir()
    for number in range(4):
        (tmp_path / "shelf" / f"{number}.txt").write_text(f"Document {number} tells of otters and rivers.")
    running: list[subprocess.Popen[str]] = []

    def on_ask(_: Ask) -> None:
        """The first request to the model is the moment to press Ctrl-C."""
        if running:
            # As a terminal does: to all processes of the command.
            os.killpg(running.pop().pid, signal.SIGINT)

    penstock = [sys.executable, "-m", "penstock.cli"]
    with EmbeddingServer(dimensions=DIMENSIONS, on_ask=on_ask) as server:
        command = [*penstock, "index", "shelf", "--model", MODEL, "--embedding-url", server.url]
        command += ["--dimensions", str(DIMENSIONS), "--input-tokens", "512", "--price", "2.5"]
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        running.append(process)
        out, err = process.communicate(timeout=SECONDS_MAX)
        # Not a word of Spark's own, of which there are many: they are in the log beside the checkpoint.
        assert (process.returncode, err) == (130, "")
        assert (tmp_path / "penstock-data" / "checkpoint.log").exists()
        assert "nothing is lost" in out
        # What was begun is done without naming a path, a model or its endpoint again.
        again = subprocess.run(
            [*penstock, "index"], cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
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
