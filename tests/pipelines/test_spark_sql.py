"""A SELECT over the catalog on Spark: its tables and nothing else, within its time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.lake.lakes import Lake

from penstock.errors import DeadlineExceeded, InvalidInput
from penstock.lake import scans_tables_once, tables_of
from penstock.pipelines import spark_rows

pytestmark = pytest.mark.integration


def ask(spark: Any, lake: Lake, query: str, seconds_max: float = 400.0) -> Any:
    options = {"url": lake.url, "prefix": lake.prefix}
    return spark_rows(spark, query, tables_of(query), options, 10, seconds_max)


def test_spark_answers_from_tables_alone_and_within_its_time(spark: Any, tmp_path: Path) -> None:
    async def filled() -> Lake:
        async with Lake(tmp_path) as lake:
            await lake.write(1, hour=0)
            return lake

    lake = asyncio.run(filled())
    table, is_cut = ask(spark, lake, "SELECT count(*) AS c FROM cpu")
    assert (table.to_pylist(), is_cut) == ([{"c": 100}], False)
    table, is_cut = ask(spark, lake, "SELECT n FROM cpu")
    assert (table.num_rows, is_cut) == (10, True)
    secret = tmp_path / "secret"
    secret.write_text("do not read")
    for query in ("SELECT * FROM text.secret", f'SELECT * FROM text."{secret}"'):
        with pytest.raises(InvalidInput) as refused:
            ask(spark, lake, query)
        # It was not looked for as a file.
        assert "PATH" not in str(refused.value)
    assert spark.conf.get("spark.sql.runSQLOnFiles") == "true"
    with pytest.raises(DeadlineExceeded):
        ask(spark, lake, "SELECT count(*) FROM range(100000000000000)", seconds_max=0.3)


def test_conditions_of_a_query_that_scans_a_table_once_choose_its_files(spark: Any, tmp_path: Path) -> None:
    """The rows of one file are damaged: whoever reads it fails, and whoever leaves it out does not notice."""

    async def filled() -> Lake:
        async with Lake(tmp_path) as lake:
            await lake.write(1, hour=0)
            await lake.write(1, hour=5)
            return lake

    lake = asyncio.run(filled())
    path = next((tmp_path / "lake" / "acme" / "cpu" / "05").glob("*.parquet"))
    body = path.read_bytes()
    # Its footer stays as it is: the columns of a table are the union of its files'.
    path.write_bytes(body[:4] + bytes(len(body) // 4) + body[4 + len(body) // 4 :])

    def count(query: str) -> int:
        options = {"url": lake.url, "prefix": lake.prefix, "pushFilters": str(scans_tables_once(query)).lower()}
        table, _ = spark_rows(spark, query, tables_of(query), options, 10, 400.0)
        return int(table.column(0)[0].as_py())

    condition = "time < TIMESTAMP '1970-01-01 01:00:00 UTC'"
    assert count(f"SELECT count(n) FROM cpu WHERE {condition}") == 100
    assert count("SELECT count(n) FROM cpu WHERE n < 100") == 100
    with pytest.raises(InvalidInput):
        count("SELECT count(n) FROM cpu")
    with pytest.raises(InvalidInput):
        count(f"SELECT count(a.n) FROM cpu a JOIN cpu b ON a.n = b.n WHERE a.{condition}")
