"""`penstock sql` and `penstock compact`, as a person calls them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.lake.lakes import Lake

from penstock.cli.main import penstock
from penstock.lake.file_layout import _BLOOM, _ORDERS
from penstock.telemetry import data_files


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    async def session() -> None:
        async with Lake(tmp_path) as made:
            await made.write(9)

    asyncio.run(session())
    return tmp_path


def run(folder: Path, command: str, *arguments: str) -> Result:
    return CliRunner().invoke(penstock, [command, "--store", str(folder), "--prefix", "lake", *arguments])


def test_an_answer_is_a_table_for_a_person(lake: Path) -> None:
    found = run(lake, "sql", "SELECT host, count(*) AS rows FROM cpu WHERE n < 14 GROUP BY ALL ORDER BY host LIMIT 2")
    assert found.exit_code == 0, found.output
    assert found.stdout.splitlines() == ["host  rows", "h0       2", "h1       2"]
    assert "2 rows; " in found.stderr


def test_json_has_whole_rows_and_the_position_that_as_of_takes(lake: Path) -> None:
    found = json.loads(run(lake, "sql", "--json", "SELECT count(*) AS n, max(time) AS last FROM cpu").stdout)
    assert found["columns"] == ["n", "last"]
    assert found["rows"][0][0] == 900
    assert found["is_cut"] is False
    past = run(lake, "sql", "--json", "--as-of", json.dumps({"": 2}), "SELECT count(*) FROM cpu")
    assert json.loads(past.stdout)["rows"] == [[200]]
    assert json.loads(run(lake, "sql", "--json", "--as-of", "2", "SELECT count(*) FROM cpu").stdout)["rows"] == [[200]]


def test_rows_are_cut_at_the_bound(lake: Path) -> None:
    found = json.loads(run(lake, "sql", "--json", "--rows", "3", "SELECT n FROM cpu").stdout)
    assert (len(found["rows"]), found["is_cut"]) == (3, True)


@pytest.mark.parametrize("query", ["DROP TABLE cpu", "SELECT * FROM nowhere", "SELECT 1; SELECT 2"])
def test_what_cannot_be_answered_is_explained(lake: Path, query: str) -> None:
    found = run(lake, "sql", query)
    assert found.exit_code == 1
    assert "why:" in found.stderr


def test_a_position_that_is_none_is_refused(lake: Path) -> None:
    assert run(lake, "sql", "--as-of", "yesterday", "SELECT 1").exit_code == 1


def test_files_are_merged_and_the_answer_stays_the_same(lake: Path) -> None:
    asked = "SELECT count(*), sum(n), count(DISTINCT n) FROM cpu"
    before = json.loads(run(lake, "sql", "--json", asked).stdout)
    told = json.loads(run(lake, "compact", "--engine", "local", "--upkeep", "--json").stdout)
    assert (told["merged"], told["files_before"], told["failed"]) == (1, 9, 0)
    assert told["upkeep"] == {"expired_files": 0, "deleted": 0}
    after = json.loads(run(lake, "sql", "--json", asked).stdout)
    assert after["rows"] == before["rows"]
    assert (before["files"], after["files"]) == (9, 1)


def test_merged_files_are_laid_out_as_telemetry_lays_out_new_ones() -> None:
    assert data_files._ORDERS == _ORDERS
    assert data_files._BLOOM_COLUMNS == _BLOOM


def test_a_query_that_cannot_be_interrupted_ends_with_its_command_and_names_the_bound(lake: Path) -> None:
    """A list of a thousand million numbers is one value: DuckDB neither counts it nor stops while it makes it."""
    settings = lake / "settings.toml"
    settings.write_text("[sql]\nmemory_bytes = 16777216\nanswer_bytes_max = 1048576\n")
    command = [sys.executable, "-m", "penstock.cli", "sql", "--store", str(lake), "--prefix", "lake"]
    query = "SELECT list_aggregate(range(1000000000), 'sum') AS total"
    ended = subprocess.run(
        [*command, "--config", str(settings), query], capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("AtCapacity: the query needs too much memory")
    assert "memory_bytes" in ended.stderr
    assert ended.stdout == ""
