"""Every value that DuckDB has can be shown, also where Python has none for it."""

from __future__ import annotations

import duckdb
import msgspec

from penstock.lake import answer_rows


def test_rows_of_every_type_at_its_bounds_become_json() -> None:
    with duckdb.connect(":memory:") as connection:
        table = connection.execute("SELECT * FROM test_all_types()").to_arrow_table()
    rows = answer_rows(table)
    assert len(rows) == 3
    assert all(len(row) == table.num_columns for row in rows)
    msgspec.json.encode(rows, enc_hook=str)


def test_dates_and_times_beyond_the_years_of_python_are_texts() -> None:
    with duckdb.connect(":memory:") as connection:
        sql = "SELECT 'infinity'::DATE AS a, '2025-02-03'::DATE AS a, ['infinity'::DATE] AS b, TIMESTAMP '2025-02-03 04:05:06' AS c"
        (row,) = answer_rows(connection.execute(sql).to_arrow_table())
    assert row == [
        "<value out of range: 2147483647>",
        "2025-02-03",
        "<value out of range>",
        "2025-02-03 04:05:06.000000",
    ]
