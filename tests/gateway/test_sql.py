"""SQL over HTTP: the tenant's rows alone, one SELECT, as JSON or Arrow."""

import asyncio

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.catalog import Catalog, CatalogConfig, DataFile
from penstock.gateway import Gateway, GatewayConfig, Scope, SqlRoutes, TokenBook
from penstock.lake import SqlEngine
from penstock.objects import open_store

NOW = 1_700_000_000_000_000_000


@pytest.fixture
def asked(tmp_path):
    """Asks as tenant `a` or `b`, each of which has one file of table `mine`."""
    book, tokens = TokenBook.new(), {}
    for tenant in ("a", "b"):
        book, tokens[tenant] = book.issue(tenant, [Scope.READ], 0)

    async def ask(tenant, body, headers):
        store = await open_store(f"memory://{tmp_path.name}")
        async with await Catalog.open(store, "lake", CatalogConfig()) as catalog:
            if not (await catalog.plan()).table.num_rows:
                for name in ("a", "b"):
                    times = pa.array([NOW, NOW + 1], pa.timestamp("ns", "UTC"))
                    table = pa.table({"tenant": [name] * 2, "time": times, "v": [1.5, float("nan")]})
                    sink = pa.BufferOutputStream()
                    pq.write_table(table, sink)
                    data = sink.getvalue().to_pybytes()
                    await store.put(f"lake/{name}.parquet", data)
                    file = DataFile(
                        path=f"{name}.parquet",
                        min_timestamp=NOW,
                        max_timestamp=NOW + 1,
                        row_count=2,
                        size_bytes=len(data),
                        tenant=name,
                        table="mine",
                    )
                    await catalog.register([file])

            tables = SqlEngine(catalog)
            app = Gateway(SqlRoutes(tables, GatewayConfig()).endpoints(), GatewayConfig(tokens="x"), lambda: book)
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
                bearer = {"authorization": f"Bearer {tokens[tenant]}"}
                answer = await client.post("/v1/sql", json=body, headers={**bearer, **headers})
            await tables.close()
        await store.close()
        return answer

    return lambda tenant, body, **headers: asyncio.run(ask(tenant, body, headers))


def test_a_tenant_sees_its_own_rows(asked):
    for tenant in ("a", "b"):
        answer = asked(tenant, {"query": "select tenant, v, v as v from mine order by time"})
        assert answer.json()["rows"] == [[tenant, 1.5, 1.5], [tenant, "nan", "nan"]], answer.text


def test_sums_of_integers_are_integers_and_decimals_keep_their_places(asked):
    query = "select sum(n), 1.50::decimal(9, 2), 2::hugeint, (10::hugeint)**20 from (values (1), (2)) t(n)"
    assert asked("a", {"query": query}).json()["rows"] == [[3, "1.50", 2, 1e20]]


def test_an_answer_as_arrow(asked):
    answer = asked("a", {"query": "select count(*) as n from mine"}, accept="application/vnd.apache.arrow.stream")
    assert pa.ipc.open_stream(answer.content).read_all().to_pylist() == [{"n": 2}]
    assert answer.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    "query",
    [
        "",
        "select",
        "select * from read_csv('/etc/passwd')",
        "select * from '/etc/passwd'",
        "copy mine to '/tmp/x'",
        "create table x (a int)",
        "select 1; select 2",
        "install httpfs",
        "set memory_limit = '1TB'",
        "attach '/tmp/x.db'",
        "pragma version",
        "select * from nowhere",
    ],
)
def test_anything_but_one_select_over_tables_is_refused(asked, query):
    answer = asked("a", {"query": query})
    assert 400 <= answer.status_code < 500, answer.text
    assert "root:" not in answer.text


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"query": 1},
        {"query": "select 1", "rows": 0},
        {"query": "select 1", "rows": 10**40},
        {"query": "select 1", "x": 1},
        {"query": "select 1", "as_of": -1},
        {"query": "select 1", "as_of": 10**40},
        {"query": "select 1", "as_of": {"": -(10**40)}},
    ],
)
def test_a_body_that_is_no_query_is_refused(asked, body):
    assert asked("a", body).status_code == 400
