"""What another engine may be asked: texts that both parsers read in the same way, and nothing beyond tables."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidInput
from penstock.lake import SqlConfig, scans_tables_once, tables_of
from penstock.lake.sql_run import connect
from penstock.lake.statement import checked_select

# DuckDB reads two texts; Spark reads one text and then FROM a file.
TWO_READINGS = "SELECT '\\' AS a, ' FROM text.`/etc/hostname` --'"


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT count(*) FROM metrics WHERE metric = 'a--b /* c */'", {"metrics"}),
        ("WITH a AS (SELECT 1 AS x) SELECT * FROM a JOIN logs ON true", {"logs"}),
        ("WITH a AS (FROM logs), b AS (FROM a) SELECT * FROM B", {"logs"}),
        ("WITH logs AS (FROM logs) SELECT * FROM logs", {"logs"}),
        ("WITH RECURSIVE t AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM t) SELECT * FROM t", set()),
        ("SELECT * FROM (WITH a AS (SELECT 1) FROM a) JOIN a USING (x)", {"a"}),
        ("WITH a AS (SELECT 1) SELECT * FROM main.a", {"a"}),
        ("SELECT (SELECT max(x) FROM a) FROM b WHERE EXISTS (FROM c)", {"a", "b", "c"}),
        ("FROM metrics SELECT value", {"metrics"}),
        ("(SELECT 1) UNION ALL (SELECT 2)", set()),
        ("VALUES (1)", set()),
        ("SELECT 'it''s' AS \"a name\" FROM traces", {"traces"}),
        ("SELECT 3 - -1, 6 / 2 FROM logs", {"logs"}),
    ],
)
def test_a_select_names_its_tables(sql: str, tables: set[str]) -> None:
    assert tables_of(sql) == tables


@pytest.mark.parametrize(
    ("sql", "is_once"),
    [
        (
            "SELECT count(*) FROM metrics WHERE time >= now() - INTERVAL 1 HOUR GROUP BY metric HAVING count(*) > 1",
            True,
        ),
        ("SELECT * FROM metrics m JOIN logs l ON m.time = l.time", True),
        ("SELECT 1", True),
        ("SELECT * FROM metrics a JOIN metrics b USING (time)", False),
        ("SELECT * FROM metrics a JOIN Metrics b USING (time)", False),
        ("SELECT * FROM metrics UNION ALL SELECT * FROM logs", False),
        ("WITH a AS (FROM metrics) SELECT * FROM a x JOIN a y USING (time)", False),
        ("SELECT * FROM metrics WHERE value > (SELECT avg(value) FROM logs)", False),
        ("SELECT * FROM (SELECT * FROM metrics WHERE value > 1) WHERE value < 2", False),
    ],
)
def test_tables_that_may_be_scanned_twice_are_told_apart(sql: str, is_once: bool) -> None:
    """Conditions choose the files of a scan, and would choose them for the other one too."""
    assert scans_tables_once(sql) is is_once


@pytest.mark.parametrize(
    "sql",
    [
        TWO_READINGS,
        "SELECT * FROM text.`/etc/hostname`",
        "SELECT $$ a $$",
        "SELECT 1 -- comment",
        "SELECT 1 --",
        "SELECT /* comment */ 1",
        "SELECT /*+ BROADCAST(a) */ 1",
        "SELECT 1 /* ' */ FROM metrics -- '",
        "SELECT java_method('java.lang.System', 'getenv', 'HOME')",
        "SELECT system.builtin.REFLECT ('java.lang.System', 'exit', 1)",
        "SELECT try_reflect('java.lang.System', 'exit', 1)",
        "SELECT 'a\0b'",
        "SHOW TABLES",
        "SHOW FUNCTIONS",
        "DESCRIBE metrics",
        "SUMMARIZE metrics",
        "SELECT 1; SELECT 2",
        "INSERT INTO metrics VALUES (1)",
        "SELECT TRANSFORM(metric) USING 'cat' FROM metrics",
        "FROM metrics INSERT OVERWRITE DIRECTORY '/tmp/x' SELECT *",
        "SET spark.sql.runSQLOnFiles = true",
        "ADD JAR '/tmp/x.jar'",
        "CREATE FUNCTION f AS 'x'",
        "",
        " ; ",
    ],
)
def test_what_two_engines_may_read_in_two_ways_or_reaches_beyond_tables_is_refused(sql: str) -> None:
    with pytest.raises(InvalidInput):
        tables_of(sql)


@pytest.mark.parametrize(
    "sql",
    [
        # DuckDB ends the process at the query after this one.
        "SELECT * FROM enable_logging('QueryLog', storage_path = '/nowhere')",
        'SELECT 1 UNION ALL SELECT 2 FROM system.main."Enable_Logging"()',
        "DESCRIBE SELECT * FROM enable_logging()",
        "WITH a AS (FROM disable_logging()) FROM a",
        "SELECT (SELECT count(*) FROM truncate_duckdb_logs())",
        "SELECT 1 LIMIT (SELECT count(*) FROM force_checkpoint())",
        "SELECT * FROM query('SELECT * FROM enable' || '_logging()')",
        "SELECT * FROM query_table('metrics')",
        "SELECT * FROM read_csv('/etc/hostname')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM duckdb_secrets()",
    ],
)
def test_a_function_in_the_place_of_a_table_that_reaches_beyond_the_catalog_is_refused(sql: str) -> None:
    with connect(SqlConfig()) as parser, pytest.raises(InvalidInput, match="reaches beyond the catalog"):
        checked_select(sql, parser)


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT * FROM metrics, range(3), generate_series(1, 2)", {"metrics"}),
        ("SELECT abs(value), 'enable_logging()' FROM metrics", {"metrics"}),
        ("SUMMARIZE logs", {"logs"}),
    ],
)
def test_functions_that_make_rows_of_their_arguments_are_taken(sql: str, tables: set[str]) -> None:
    with connect(SqlConfig()) as parser:
        assert checked_select(sql, parser) == tables


@pytest.mark.parametrize("sql", ["SELECT '\udcff'", "SELECT \ud800"])
def test_a_text_that_is_no_unicode_is_refused_on_both_engines(sql: str) -> None:
    with connect(SqlConfig()) as parser, pytest.raises(InvalidInput, match="not UTF-8"):
        checked_select(sql, parser)
    with pytest.raises(InvalidInput, match="not UTF-8"):
        tables_of(sql)
