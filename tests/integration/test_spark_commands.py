"""`penstock compact` and `penstock sql` on Spark, as a person runs them: the same rows, in fewer files, as on DuckDB."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click import Command
from click.testing import CliRunner

from penstock.cli.commands.telemetry.ingest import ingest
from penstock.cli.commands.telemetry.telemetry import telemetry

pytestmark = pytest.mark.integration

# A cold session on a busy machine.
SECONDS_MAX = 400.0
QUERY = "SELECT tenant, count(*) AS n, sum(value) AS total FROM metrics GROUP BY tenant ORDER BY tenant"


def run(folder: Path, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def here(command: Command, *words: str, stdin: str = "") -> None:
    """In this process, for what needs no Spark."""
    result = CliRunner().invoke(command, list(words), input=stdin, catch_exceptions=False)
    assert result.exit_code == 0, result.output


@pytest.mark.slow
def test_spark_merges_files_and_answers_as_duckdb_does(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text("[catalog.compaction]\nhour_files = 2\nclosed_after_seconds = 0.0\n")
    store = str(tmp_path / "penstock-data")
    for number in range(4):
        lines = "".join(f'up{{i="{at}"}} {number} {1_763_000_000_000 + number * 1000}\n' for at in range(5))
        for tenant in ("acme", "beta"):
            here(ingest, "-", "--format", "prometheus", "--tenant", tenant, "--store", store, stdin=lines)
        here(telemetry, "run", "--engine", "local", "--no-series", "--store", store)
    before = run(tmp_path, "sql", QUERY, "--json")
    assert before["rows"] == [["acme", 20, 30.0], ["beta", 20, 30.0]]
    spark = ("--engine", "spark", "--master", "local[2]", "--json")
    merged = run(tmp_path, "compact", "--config", "penstock.toml", *spark)
    assert (merged["merged"], merged["failed"], merged["rows"]) == (2, 0, 40)
    assert (merged["files_before"], merged["files_after"]) == (8, 2)
    assert run(tmp_path, "sql", QUERY, "--json")["rows"] == before["rows"]
    on_spark = run(tmp_path, "sql", QUERY, "--tenant", "beta", "--as-of", json.dumps(before["position"]), *spark)
    assert on_spark["columns"] == ["tenant", "n", "total"]
    assert on_spark["rows"] == [["beta", 20, 30.0]]
    assert on_spark["position"] == before["position"]
