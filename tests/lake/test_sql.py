"""SQL over a catalog: right answers, pruned reads, one SELECT within bounds and nothing else."""

from __future__ import annotations

import asyncio
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.catalog.parquet_files import HOUR, add, rows
from tests.catalog.samples import CountingStore, run, small_catalog
from tests.lake.lakes import Lake

from penstock.catalog import Catalog, LoopDoor, Vacuum
from penstock.errors import AtCapacity, DeadlineExceeded, InvalidInput, NotFound
from penstock.lake import SqlConfig, SqlEngine
from penstock.objects import MemoryStore, direct_read, open_store
from penstock.testing import ManualClock


async def a_catalog(**members: Any) -> Catalog:
    """Three hours of 100 rows."""
    catalog = await small_catalog(MemoryStore(), ManualClock(), **members)
    for hour in range(3):
        await add(catalog, f"{hour}.parquet", rows(100, start=hour * HOUR))
    return catalog


async def ask(catalog: Catalog, sql: str, config: SqlConfig | None = None, **query: Any) -> list[tuple[Any, ...]]:
    async with SqlEngine(catalog, config) as engine:
        answer = await engine.query(sql, **query)
        return [tuple(row.values()) for row in answer.table.to_pylist()]


def test_rows_are_counted_grouped_and_filtered_over_all_files() -> None:
    async def session() -> None:
        catalog = await a_catalog()
        assert await ask(catalog, "SELECT count(*) FROM cpu") == [(300,)]
        assert await ask(catalog, "SELECT host, sum(n) FROM cpu WHERE n < 14 GROUP BY ALL ORDER BY 1 LIMIT 2") == [
            ("h0", 21),
            ("h1", 27),
        ]
        assert await ask(catalog, "SELECT n FROM cpu WHERE n = 5 AND time >= '1970-01-01 02:00'") == [(5,)]

    run(session())


def test_a_decimal_of_more_digits_than_duckdb_has_is_read_as_text() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore(), ManualClock())
        wide: Any = pa.array([Decimal("1.5"), None], pa.decimal256(60, 2))
        await add(catalog, "wide.parquet", rows(2, wide=wide))
        assert await ask(catalog, "SELECT wide FROM cpu ORDER BY n") == [("1.50",), (None,)]
        assert await ask(catalog, "SELECT count(*) FROM cpu WHERE wide = '1.50'") == [(1,)]

    run(session())


@pytest.mark.parametrize(
    ("where", "files", "count"),
    [
        ("time >= '1970-01-01 01:00' AND time < '1970-01-01 02:00'", 1, 100),
        ("time >= '1970-01-01 01:00'", 2, 200),
        ("time < '1970-01-01 01:00'", 1, 100),
        ("time = '1970-01-01 02:00:07'", 1, 1),
        ("time BETWEEN '1970-01-01 01:00' AND '1970-01-01 01:00:09'", 1, 10),
        ("time > now()", 0, 0),
        ("time < '1970-01-01 00:00:05' OR n = 7", 3, 8),
        ("time IS NULL", 3, 0),
        ("n >= 0", 3, 300),
        ("time < '1970-01-01' AND time > '1971-01-01'", 0, 0),
        ("date_trunc('hour', time) = '1970-01-01 01:00'", 3, 100),
    ],
)
def test_times_in_a_condition_choose_the_files_and_never_change_the_answer(where: str, files: int, count: int) -> None:
    async def session() -> None:
        catalog = await a_catalog()
        async with SqlEngine(catalog) as engine:
            answer = await engine.query(f"SELECT count(*) AS rows FROM cpu WHERE {where}")
        assert answer.table["rows"].to_pylist() == [count]
        assert answer.files <= files

    run(session())


def test_statistics_leave_out_files_before_they_are_opened() -> None:
    async def session() -> None:
        catalog = await a_catalog()
        await add(catalog, "late.parquet", rows(10, start=HOUR, n=pa.array(range(1000, 1010))))
        await catalog.store.delete(catalog.layout.key("0.parquet"))
        known = {"cpu": rows(1).schema}
        async with SqlEngine(catalog, known=known) as engine:
            found = await engine.query("SELECT n FROM cpu WHERE n > 1008")
            assert found.table["n"].to_pylist() == [1009]
            with pytest.raises(NotFound, match=r"0\.parquet"):
                await engine.query("SELECT n FROM cpu WHERE n > 90")

    run(session())


def test_not_a_number_is_above_every_number_as_duckdb_has_it() -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore(), ManualClock())
        values = pa.array([1.0, math.nan, math.inf, None, -1.0])
        await add(catalog, "a.parquet", rows(5, value=values))
        assert await ask(catalog, "SELECT n FROM cpu WHERE value > 3 ORDER BY n") == [(1,), (2,)]
        assert await ask(catalog, "SELECT n FROM cpu WHERE value > 'inf'::DOUBLE") == [(1,)]
        assert await ask(catalog, "SELECT n FROM cpu WHERE value = 'nan'::DOUBLE") == [(1,)]
        assert await ask(catalog, "SELECT n FROM cpu WHERE value < 0") == [(4,)]
        assert await ask(catalog, "SELECT count(*) FROM cpu WHERE value IS NULL") == [(1,)]

    run(session())


def test_all_tables_of_a_query_are_read_at_one_position_and_the_past_can_be_asked() -> None:
    async def session() -> None:
        catalog = await a_catalog()
        async with SqlEngine(catalog) as engine:
            before = (await engine.query("SELECT 1")).position
            await add(catalog, "more.parquet", rows(5, start=5 * HOUR))
            twice = await engine.query(
                "SELECT (SELECT count(*) FROM cpu) AS a, (SELECT count(*) FROM cpu) AS b", as_of=before
            )
            assert list(twice.table.to_pylist()[0].values()) == [300, 300]
            assert (await engine.query("SELECT count(*) AS n FROM cpu")).table["n"].to_pylist() == [305]
        assert not (await catalog.shard("").fresh()).pins

    run(session())


def test_a_tenant_sees_its_own_files_only() -> None:
    async def session() -> None:
        catalog = await a_catalog()
        await add(catalog, "other.parquet", rows(7), tenant="other")
        assert await ask(catalog, "SELECT count(*) FROM cpu", tenant="other") == [(7,)]
        with pytest.raises(NotFound):
            await ask(catalog, "SELECT count(*) FROM cpu", tenant="nobody")

    run(session())


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "SELECT 1; SELECT 2",
        "CREATE TABLE t AS SELECT 1",
        "COPY (SELECT 1) TO '/tmp/never'",
        "ATTACH '/tmp/never.db'",
        "SET threads = 8",
        "PRAGMA database_list",
        "INSTALL httpfs",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM 'https://example.com/x.parquet'",
        "SELECT count(*) FROM secret_of_this_test",
        "SELECT count(*) FROM catalog",
        "SELECT no_such_column FROM cpu",
        "SELECT",
        "SELECT n FROM cpu WHERE n = ?",
        "not sql at all",
    ],
)
def test_whatever_is_not_one_select_over_tables_is_refused(sql: str) -> None:
    secret_of_this_test = pa.table({"x": [1]})

    async def session() -> None:
        catalog = await a_catalog()
        with pytest.raises((InvalidInput, NotFound)):
            await ask(catalog, sql)

    run(session())
    assert secret_of_this_test.num_rows == 1


def test_an_answer_is_cut_at_its_bound_and_says_so() -> None:
    async def session() -> None:
        catalog = await a_catalog()
        async with SqlEngine(catalog, SqlConfig(rows_max=10)) as engine:
            cut = await engine.query("SELECT * FROM cpu")
            assert (cut.table.num_rows, cut.is_cut) == (10, True)
            whole = await engine.query("SELECT * FROM cpu LIMIT 10", rows_max=1000)
            assert (whole.table.num_rows, whole.is_cut) == (10, False)

    run(session())


def test_too_much_memory_and_too_much_time_end_a_query() -> None:
    async def session() -> None:
        catalog = await a_catalog()
        with pytest.raises(AtCapacity):
            await ask(
                catalog,
                "SELECT list(a.range * b.range) FROM range(3000) a, range(3000) b",
                SqlConfig(memory_bytes=16 * 1024 * 1024),
            )
        with pytest.raises(DeadlineExceeded):
            await ask(
                catalog,
                "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range % 7 = 3",
                seconds_max=0.2,
            )

    run(session())


def test_a_query_that_is_given_up_leaves_no_thread_behind() -> None:
    async def session() -> None:
        catalog = await a_catalog()
        async with SqlEngine(catalog) as engine:
            task = asyncio.ensure_future(
                engine.query(
                    "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range % 7 = 3"
                )
            )
            while not engine.running and not task.done():  # noqa: ASYNC110  the engine tells nobody
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not engine.running

    run(session())


def test_columns_that_only_some_files_have_can_be_asked_for() -> None:
    async def session() -> None:
        catalog = await a_catalog()
        await add(catalog, "new.parquet", rows(2, start=4 * HOUR, zone=pa.array(["x", "y"])))
        assert await ask(catalog, "SELECT count(*), count(zone) FROM cpu") == [(302, 2)]

    run(session())


@pytest.mark.parametrize(
    ("sql", "count"),
    [
        ("SELECT count(*) FROM cpu a JOIN cpu b USING (time, n)", 300),
        ("SELECT count(*) FROM cpu NATURAL JOIN (SELECT time FROM cpu)", 300),
        ("SELECT count(*) FROM cpu a ASOF JOIN cpu b ON a.time >= b.time", 300),
        ("SELECT count(*) FROM cpu a SEMI JOIN cpu b USING (host)", 300),
        ("SELECT count(COLUMNS('^n$')) FROM cpu", 300),
        ("SELECT count(*) FROM cpu c, unnest([c.n, c.n])", 600),
        ("WITH other AS (SELECT * FROM cpu) SELECT count(*) FROM other JOIN cpu USING (time)", 300),
        ("SELECT count(*) FROM main.cpu", 300),
        ("SELECT count(*) FROM CPU JOIN Cpu b USING (time)", 300),
    ],
)
def test_whatever_duckdb_joins_is_joined_and_names_have_no_case(sql: str, count: int) -> None:
    async def session() -> None:
        assert await ask(await a_catalog(), sql) == [(count,)]

    run(session())


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("time < '9999-12-31'", 300),
        ("time BETWEEN '0001-01-01' AND '9999-12-31 23:59:59'", 300),
        ("time > TIMESTAMP '290000-01-01'", 0),
        ("time >= '1970-01-01 01:00' AND time < '3000-01-01' AND n < 10", 20),
        ("time < 'infinity'", 300),
    ],
)
def test_a_condition_may_name_times_that_nanoseconds_do_not_reach(where: str, count: int) -> None:
    async def session() -> None:
        assert await ask(await a_catalog(), f"SELECT count(*) FROM cpu WHERE {where}") == [(count,)]

    run(session())


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ("(n IS DISTINCT FROM 3 OR n < 2)", 297),
        ("(n IS NOT DISTINCT FROM 3 OR n < 2)", 9),
        ("{'a': n, 'b': host} IN ({'a': 1, 'b': 'h1'}, {'a': 2, 'b': 'h2'})", 6),
        ("pair IN ({'a': 1}, {'a': 2})", 6),
    ],
)
def test_a_condition_that_arrow_cannot_judge_is_judged_by_duckdb(where: str, count: int) -> None:
    async def session() -> None:
        catalog = await small_catalog(MemoryStore(), ManualClock())
        for number in range(3):
            pairs = pa.array([{"a": one} for one in range(100)])
            await add(catalog, f"{number}.parquet", rows(100, start=number * HOUR, pair=pairs))
        assert await ask(catalog, f"SELECT count(*) FROM cpu WHERE {where}") == [(count,)]

    run(session())


@pytest.mark.parametrize("sql", ["SHOW TABLES", "show all tables", "DESCRIBE"])
def test_tables_are_listed_as_they_are_at_a_position_and_for_a_tenant(sql: str) -> None:
    async def session() -> None:
        catalog = await a_catalog()
        before = (await catalog.hold()).position
        await add(catalog, "other.parquet", rows(7), table="disks", tenant="beta")
        assert await ask(catalog, sql) == [("cpu",), ("disks",)]
        assert await ask(catalog, sql, as_of=before) == [("cpu",)]
        assert await ask(catalog, sql, tenant="beta") == [("disks",)]
        async with SqlEngine(catalog, SqlConfig()) as engine:
            cut = await engine.query(sql, rows_max=1)
        assert (cut.table.num_rows, cut.is_cut) == (1, True)

    run(session())


@pytest.mark.parametrize(
    "sql",
    [
        "SHOW DATABASES",
        "SHOW TABLES FROM main",
        "SELECT * FROM (SHOW TABLES)",
        "SELECT table_name FROM information_schema.tables",
        "SELECT * FROM duckdb_tables",
        "SELECT * FROM sqlite_master",
        "WITH x AS (SELECT * FROM pg_catalog.pg_tables) SELECT * FROM x",
    ],
)
def test_questions_about_the_engine_itself_are_refused_with_what_to_ask_instead(sql: str) -> None:
    """The engine holds just the tables that a query names: the answer was always empty."""

    async def session() -> None:
        with pytest.raises(InvalidInput, match="SHOW TABLES"):
            await ask(await a_catalog(), sql)

    run(session())


def test_tables_that_differ_in_case_alone_are_asked_for_one_at_a_time() -> None:
    async def session() -> None:
        catalog = await a_catalog()
        await add(catalog, "other.parquet", rows(7), table="Cpu")
        assert await ask(catalog, 'SELECT count(*) FROM "Cpu"') == [(7,)]
        assert await ask(catalog, "SELECT count(*) FROM cpu") == [(300,)]
        with pytest.raises(InvalidInput, match="both tables 'Cpu' and 'cpu'"):
            await ask(catalog, 'SELECT (SELECT count(*) FROM "Cpu"), (SELECT count(*) FROM cpu)')
        with pytest.raises(NotFound):
            await ask(catalog, "SELECT count(*) FROM CPU")

    run(session())


@pytest.mark.parametrize("name", ["select", "my table", 'a "b"', "a.b", "duckdb_tables", "temp", "penstock_base_cpu"])
def test_a_table_may_have_any_name(name: str) -> None:
    async def session() -> None:
        catalog = await a_catalog()
        await add(catalog, "odd.parquet", rows(5, value=pa.array([1.0] * 5)), table=name)
        quoted = '"' + name.replace('"', '""') + '"'
        assert await ask(catalog, f"SELECT count(*) FROM {quoted} WHERE value = 1") == [(5,)]
        assert await ask(catalog, f"SELECT count(*) FROM {quoted} JOIN cpu USING (time)") == [(5,)]

    run(session())


def test_a_known_table_without_files_is_empty_and_tables_are_listed() -> None:
    async def session() -> None:
        catalog = await a_catalog()
        async with SqlEngine(catalog, known={"metrics": rows(1).schema}) as engine:
            assert (await engine.query("SELECT count(*) AS n FROM metrics")).table["n"].to_pylist() == [0]
            assert await engine.tables() == ["cpu", "metrics"]

    run(session())


def test_a_query_goes_on_while_its_files_are_merged_away() -> None:
    async def session() -> None:
        catalog = await a_catalog()
        async with SqlEngine(catalog) as engine:
            position = (await engine.query("SELECT 1")).position
            await catalog.delete(["0.parquet"])
            await Vacuum(catalog).run()
            found = await engine.query("SELECT count(*) AS n FROM cpu", as_of=position)
            assert found.table["n"].to_pylist() == [300]

    run(session())


def test_a_query_asks_once_where_the_catalog_stands() -> None:
    """However many tables and scans it has: all of them are planned from the heads that were read first."""

    async def session() -> None:
        store = CountingStore()
        catalog = await small_catalog(store, ManualClock(), staleness_seconds=0.0)
        for hour in range(3):
            await add(catalog, f"{hour}.parquet", rows(100, start=hour * HOUR))
        known = {"cpu": rows(1).schema, "more": rows(1).schema}
        async with SqlEngine(catalog, known=known) as engine:
            store.calls.clear()
            await engine.query("SELECT count(*) FROM cpu, more, cpu AS again WHERE cpu.n = again.n")
        asked = [count for (verb, key), count in store.calls.items() if verb.startswith("get") and "metadata" in key]
        assert asked == [1], store.calls

    run(session())


def test_a_file_in_a_directory_is_read_by_the_thread_that_needs_it(tmp_path: Path) -> None:
    async def session() -> None:
        async with Lake(tmp_path) as lake:
            await lake.write(2)
            store = await open_store(lake.url, read_only=True)
            read = direct_read(store)
            assert read is not None
            assert direct_read(MemoryStore()) is None
            path = (await lake.catalog.plan()).paths[0]
            assert read(f"lake/{path}", 0, 4) == b"PAR1"
            with pytest.raises(NotFound):
                read("lake/nothing.parquet", 0, 4)
            async with SqlEngine(lake.catalog) as engine:
                assert (await engine.query("SELECT sum(n) AS n FROM cpu")).table["n"].to_pylist() == [sum(range(200))]
            await lake.store.delete(f"lake/{path}")
            async with SqlEngine(lake.catalog) as engine:
                with pytest.raises(NotFound, match=path):
                    await engine.query("SELECT sum(n) AS n FROM cpu")
            await store.close()

    run(session())


def test_a_query_of_a_directory_is_planned_and_read_without_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop may be busy with other work: a query would wait for its turn, twice."""

    def asked(*_: object) -> None:
        raise AssertionError("the loop was asked")

    async def session() -> None:
        async with Lake(tmp_path) as lake:
            await lake.write(2)
            async with SqlEngine(lake.catalog) as engine:
                await engine.query("SELECT 1")
                monkeypatch.setattr(LoopDoor, "run", asked)
                answer = await engine.query("SELECT count(*) AS n FROM cpu WHERE time < '2000-01-01' AND n < 150")
                assert (answer.table["n"].to_pylist(), answer.files) == ([150], 2)

    run(session())


def test_a_plan_from_memory_is_the_same_as_one_from_the_store() -> None:
    async def session() -> None:
        catalog = await a_catalog(inline_files_max=1)
        held = await catalog.hold()
        asked: dict[str, Any] = {"table": "cpu", "tenant": "acme"}
        planned = await held.plan(0, 2 * HOUR, ["n"], **asked)
        known = held.known_plan(0, 2 * HOUR, ["n"], **asked)
        assert known is not None
        assert [set(file.column_stats) for file in known.files] == [{"n"}, {"n"}]
        assert (known.files, known.position, known.total_files) == (planned.files, planned.position, 3)
        assert held.known_plan(5 * HOUR, None, (), **asked) is not None
        other = await Catalog.open(catalog.store, catalog.layout.prefix, catalog.config)
        assert (await other.hold()).known_plan(0, 2 * HOUR, **asked) is None
        await other.close()

    run(session())
