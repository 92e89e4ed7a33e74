"""A catalog lent to a SQL process: it reads the files that were planned for its tenant, and that is all it can do."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.catalog import Catalog, CatalogConfig, DataFile
from penstock.cli.serving.sql_child import bare_environment, sql_command, worker_bounds
from penstock.errors import AtCapacity, Closed, InvalidInput, NotFound, PermissionDenied
from penstock.gateway import CatalogLender, LentCatalog, SqlProcesses
from penstock.gateway.query.catalog_lender import Loan
from penstock.gateway.query.sql_frames import LoanRequest, encode_frame
from penstock.lake import SqlConfig
from penstock.objects import MemoryStore

NOW = 1_700_000_000_000_000_000


async def registered(store):
    """A catalog with one file each of two tenants."""
    catalog = await Catalog.open(store, "lake", CatalogConfig())
    for name in ("a", "b"):
        times = pa.array([NOW, NOW + 1], pa.timestamp("ns", "UTC"))
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"tenant": [name] * 2, "time": times, "v": [1, 2]}), sink)
        data = sink.getvalue().to_pybytes()
        await store.put(f"lake/{name}.parquet", data)
        await catalog.register(
            [
                DataFile(
                    path=f"{name}.parquet",
                    min_timestamp=NOW,
                    max_timestamp=NOW + 1,
                    row_count=2,
                    size_bytes=len(data),
                    tenant=name,
                    table="mine",
                )
            ]
        )
    return catalog


@asynccontextmanager
async def lent(tenant="a"):
    """The borrower's side of a loan, of a catalog with a file of tenant `a` and one of `b`; a question is under way."""
    store = MemoryStore()
    catalog = await registered(store)
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    (answers_in, answers_out), (requests_in, requests_out) = os.pipe(), os.pipe()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(requests_in, "rb", 0))
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(answers_out, "wb", 0)
    )

    async def opened():
        return catalog

    loan, answers = Loan(), asyncio.StreamWriter(transport, protocol, None, loop)
    lending = asyncio.ensure_future(CatalogLender(store, "lake", opened).serve(loan, reader, answers))
    borrowed = await LentCatalog.open("memory://lent", "lake", CatalogConfig(), answers_in, requests_out)
    try:
        with loan.of(tenant):
            yield SimpleNamespace(
                borrowed=borrowed, lending=lending, requests=requests_out, loan=loan, store=store, catalog=catalog
            )
    finally:
        os.close(requests_out)
        lending.cancel()
        await asyncio.wait([lending])
        await borrowed.close()
        await catalog.close()


def test_what_is_planned_and_read_through_the_loan_is_what_the_catalog_has():
    async def read():
        async with lent() as loan:
            state = await loan.borrowed.hold()
            files = (await state.plan(NOW, NOW + 5, table="mine")).files
            held = await loan.catalog.hold()
            assert state.position == held.position
            assert files == (await held.plan(NOW, NOW + 5, table="mine", tenant="a")).files
            assert [file.path for file in files] == ["a.parquet"]
            data = (await loan.store.get("lake/a.parquet")).data
            assert await loan.borrowed.get_range("lake/a.parquet", 3, 40) == data[3:40]
            assert (await state.plan(NOW + 5, NOW + 9, table="mine")).files == []

    asyncio.run(read())


@pytest.mark.slow
def test_many_reads_at_once_each_get_their_own_bytes():
    async def read():
        async with lent() as loan:
            await (await loan.borrowed.hold()).plan(table="mine")
            data = (await loan.store.get("lake/a.parquet")).data
            starts = range(200)
            found = await asyncio.gather(
                *[loan.borrowed.get_range("lake/a.parquet", start, start + 8) for start in starts]
            )
        assert found == [data[start : start + 8] for start in starts]

    asyncio.run(read())


@pytest.mark.parametrize(
    "key",
    [
        "lake/b.parquet",
        "lake/metadata/catalog.json",
        "lake/../lake/b.parquet",
        "lake/./b.parquet",
        "lake//b.parquet",
        "lake/a.parquet/../b.parquet",
        "lakeside/a.parquet",
        "a.parquet",
        "lake/",
        "",
    ],
)
def test_a_process_that_was_taken_over_reads_no_object_but_those_planned_for_its_tenant(key):
    async def attack():
        async with lent() as loan:
            await (await loan.borrowed.hold()).plan(table="mine")
            with pytest.raises(PermissionDenied):
                await loan.borrowed.get_range(key, 0, 100)

    asyncio.run(attack())


def test_a_plan_is_of_the_tenant_of_the_question_whatever_the_process_names():
    async def attack():
        async with lent() as loan:
            state = await loan.borrowed.hold()
            assert [file.tenant for file in (await state.plan(table="mine", tenant="b")).files] == ["a"]
            # A plan over every table is none of a query.
            with pytest.raises(InvalidInput):
                await state.plan(tenant="b")
            with pytest.raises(TypeError):
                await loan.borrowed.ask(verb="plan", table="mine", tenant="b")

    asyncio.run(attack())


def test_nothing_is_lent_before_it_is_planned_nor_once_the_question_is_answered():
    async def attack():
        async with lent() as loan:
            with pytest.raises(PermissionDenied):
                await loan.borrowed.get_range("lake/a.parquet", 0, 4)
            with pytest.raises(InvalidInput):
                await loan.borrowed.ask(verb="plan", table="mine")
            state = await loan.borrowed.hold()
            await state.plan(table="mine")
            with loan.loan.of("b"):
                pass
            for attempt in (
                loan.borrowed.get_range("lake/a.parquet", 0, 4),
                loan.borrowed.hold(),
                state.plan(table="mine"),
                loan.borrowed.pin({}, seconds=1),
            ):
                with pytest.raises(PermissionDenied):
                    await attempt

    asyncio.run(attack())


def test_nothing_is_written_and_nothing_listed_by_a_borrower_that_makes_its_own_requests():
    async def write():
        async with lent() as loan:
            before = {meta.key: meta.version async for page in loan.store.list() for meta in page}
            for verb in ("put", "delete", "list", "get", "head", "__init__", ""):
                with pytest.raises(PermissionDenied):
                    await loan.borrowed.ask(verb=verb, key="lake/a.parquet")
            assert {meta.key: meta.version async for page in loan.store.list() for meta in page} == before

    asyncio.run(write())


def test_errors_of_the_store_are_told_as_such():
    async def read():
        async with lent() as loan:
            await (await loan.borrowed.hold()).plan(table="mine")
            await loan.store.delete("lake/a.parquet")
            with pytest.raises(NotFound):
                await loan.borrowed.get_range("lake/a.parquet", 0, 4)

    asyncio.run(read())


def test_a_snapshot_is_kept_by_the_lender_once_and_only_its_own_pin_is_given_up():
    async def keep():
        async with lent() as loan:
            others = await loan.catalog.pin((await loan.catalog.hold()).position, seconds=60)
            await loan.borrowed.hold()
            made = await loan.borrowed.pin({"": 10**9}, seconds=1e12)
            with pytest.raises(PermissionDenied):
                await loan.borrowed.pin({}, seconds=1)
            with pytest.raises(PermissionDenied):
                await loan.borrowed.unpin(others.name)
            await loan.borrowed.unpin(made.name)

    asyncio.run(keep())


@pytest.mark.parametrize("garbage", [b"\xff" * 64, b"\0\0\0\4\0\0\0\0????", b"\0\0\0\1\0\0\0\1\x80x"])
def test_a_borrower_that_sends_garbage_is_lent_nothing_more(garbage):
    async def send():
        async with lent() as loan:
            os.write(loan.requests, garbage)
            await asyncio.wait_for(asyncio.wait([loan.lending]), 30)
            with pytest.raises(Closed):
                await loan.borrowed.hold()

    asyncio.run(send())


def test_a_request_with_fields_that_nobody_knows_is_no_request():
    frame = encode_frame(LoanRequest(number=1, verb="hold"))
    assert b"verb" in bytes(frame[1])

    async def send():
        async with lent() as loan:
            body = bytes(frame[1]).replace(b"verb", b"vorb")
            os.write(loan.requests, bytes(frame[0]) + body)
            await asyncio.wait_for(asyncio.wait([loan.lending]), 30)

    asyncio.run(send())


# The real process ------------------------------------------------------------------------------------------


@pytest.mark.processes
def test_a_real_process_answers_through_the_loan_now_and_as_of_a_position():
    async def ask():
        store = MemoryStore()
        catalog = await registered(store)

        async def pins():
            return catalog

        processes = SqlProcesses(
            sql_command("memory://", "lake", worker_bounds(SqlConfig(), CatalogConfig())),
            environment=bare_environment({**os.environ, "AWS_SECRET_ACCESS_KEY": "of the store"}),
            lender=CatalogLender(store, "lake", pins),
        )
        try:
            layers = dict(await processes.layers())
            first = await processes.query("select tenant, sum(v) s from mine group by 1", tenant="a")
            then = await processes.query("select count(*) n from MINE", tenant="b", as_of=first.position)
            with pytest.raises(NotFound):
                await processes.query("select * from mine", tenant="nobody")
            environment = await asyncio.to_thread(Path(f"/proc/{processes.pids[0]}/environ").read_bytes)
        finally:
            await processes.close()
            await catalog.close()
        return layers, first.table.to_pylist(), then.table.to_pylist(), environment

    layers, first, then, environment = asyncio.run(ask())
    assert set(layers) == {"no_new_privs", "network namespace", "landlock", "capabilities", "seccomp"}
    assert (first, then) == ([{"tenant": "a", "s": 3}], [{"n": 2}])
    assert b"of the store" not in environment


@pytest.mark.processes
def test_a_process_that_was_taken_over_has_no_network_no_files_and_no_children_though_it_has_threads(tmp_path):
    """What the process of a query gives up, tried from inside."""
    (tmp_path / "secret").write_text("of the store")
    attack = f"""
import asyncio, os, socket, sys, threading
from penstock.documents.parsers.isolation import confine_with_threads

def tried(attempt):
    try:
        attempt()
    except OSError:
        return "refused"
    return "done"

missing = {{layer.name for layer in confine_with_threads() if layer.missing}}
print(sorted(missing))
print(tried(lambda: socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)))
print(tried(lambda: open({str(tmp_path / "secret")!r}).read()))
print(tried(lambda: open({str(tmp_path / "new")!r}, "w")))
print(tried(lambda: open(f"/proc/{{os.getppid()}}/environ", "rb").read()))
print(tried(lambda: open(f"/proc/{{os.getppid()}}/mem", "rb").read()))
print(tried(lambda: os.listdir(f"/proc/{{os.getppid()}}/root")))
print(tried(lambda: open(f"/proc/{{os.getppid()}}/fd/0", "rb")))
print(tried(os.fork))
print(tried(lambda: os.execv("/bin/true", ["true"])))
print(tried(lambda: os.kill(os.getppid(), 0)))
print(tried(threading.Thread(target=int).start))
print(asyncio.run(asyncio.to_thread(lambda: "on a thread")))
"""

    async def run():
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", attack, str(port)), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, error = await process.communicate()
        server.close()
        return out.decode().splitlines(), error.decode()

    found, error = asyncio.run(run())
    assert found, error
    if found[0] != "[]":
        pytest.skip(f"this kernel lacks {found[0]}")
    assert found[1:] == ["refused"] * 10 + ["done", "on a thread"], error


@pytest.mark.processes
def test_an_answer_or_a_value_larger_than_is_allowed_is_refused_where_it_is_made():
    async def ask():
        store = MemoryStore()
        catalog = await registered(store)

        async def pins():
            return catalog

        config = SqlConfig(answer_bytes_max=1 << 20, memory_bytes=16 << 20)
        processes = SqlProcesses(
            sql_command("memory://", "lake", worker_bounds(config, CatalogConfig())),
            config,
            environment=bare_environment(os.environ),
            lender=CatalogLender(store, "lake", pins),
        )
        try:
            with pytest.raises(AtCapacity, match="answer is too large"):
                await processes.query("select repeat('x', 4000000) from range(1)", tenant="a")
            # One value, which DuckDB does not count and cannot be interrupted in.
            with pytest.raises(AtCapacity, match="too much memory"):
                await processes.query("select list_aggregate(range(180000000), 'sum')", tenant="a")
            return (await processes.query("select length(repeat('x', 4000000)) n", tenant="a")).table.to_pylist()
        finally:
            await processes.close()
            await catalog.close()

    assert asyncio.run(ask()) == [{"n": 4_000_000}]
