"""A store lent to a SQL process: it reads what lies below its prefix, and that is all it can do."""

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
from penstock.errors import AtCapacity, Closed, Conflict, NotFound, PermissionDenied
from penstock.gateway import LentStore, SqlProcesses, StoreLender
from penstock.gateway.query.lent_store import StoreRequest
from penstock.gateway.query.sql_frames import encode_frame
from penstock.lake import SqlConfig
from penstock.objects import MemoryStore

NOW = 1_700_000_000_000_000_000


class Pins:
    """Notes what is pinned, as a catalog would."""

    def __init__(self):
        self.kept = {}

    async def pin(self, position, *, seconds, name=None):
        made = SimpleNamespace(name=f"pin-{len(self.kept)}")
        self.kept[made.name] = (position, seconds)
        return made

    async def unpin(self, name):
        del self.kept[name]


@asynccontextmanager
async def lent(store, pins=None):
    """The borrower's side of a loan."""
    pins = pins or Pins()
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    (answers_in, answers_out), (requests_in, requests_out) = os.pipe(), os.pipe()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(requests_in, "rb", 0))
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(answers_out, "wb", 0)
    )

    async def made():
        return pins

    lender = StoreLender(store, "lake", made)
    lending = asyncio.ensure_future(lender.serve(reader, asyncio.StreamWriter(transport, protocol, None, loop)))
    borrowed = await LentStore.open("memory://lent", answers_in, requests_out)
    try:
        yield SimpleNamespace(borrowed=borrowed, lending=lending, requests=requests_out)
    finally:
        os.close(requests_out)
        lending.cancel()
        await asyncio.wait([lending])
        await borrowed.close()


async def filled():
    store = MemoryStore()
    for number in range(5):
        await store.put(f"lake/a{number}", bytes(range(10 * number)))
    await store.put("lakeside/b", b"of somebody else")
    await store.put("queue/c", b"of somebody else")
    return store


def test_what_is_read_through_the_loan_is_what_the_store_has():
    async def read():
        store = await filled()
        async with lent(store) as loan:
            borrowed = loan.borrowed
            assert await borrowed.get("lake/a3") == await store.get("lake/a3")
            assert await borrowed.head("lake/a4") == await store.head("lake/a4")
            assert await borrowed.get_range("lake/a4", 5, 9) == bytes([5, 6, 7, 8])
            assert await borrowed.get_ranges("lake/a4", [(0, 2), (0, 0), (38, 99)]) == [b"\0\1", b"", bytes([38, 39])]
            assert await borrowed.get_ranges("lake/a4", []) == []
            version = (await store.head("lake/a1")).version
            assert await borrowed.get_if_changed("lake/a1", version=version) is None
            assert await borrowed.get_if_changed("lake/a1", version="other") == await store.get("lake/a1")
            pages = [[meta.key for meta in page] async for page in borrowed.list("lake/", page_size=2)]
            assert [key for page in pages for key in page] == [f"lake/a{number}" for number in range(5)]
            assert [page async for page in borrowed.list("lake/nothing")] == []

    asyncio.run(read())


@pytest.mark.slow
def test_many_reads_at_once_each_get_their_own_bytes():
    async def read():
        store = MemoryStore()
        for number in range(200):
            await store.put(f"lake/{number}", bytes([number]) * 50_000)
        async with lent(store) as loan:
            borrowed = loan.borrowed
            found = await asyncio.gather(*[borrowed.get(f"lake/{number}") for number in range(200)])
        assert [one.data for one in found] == [bytes([number]) * 50_000 for number in range(200)]

    asyncio.run(read())


@pytest.mark.parametrize("key", ["queue/c", "lakeside/b", "lake", "lake/../queue/c", "/lake/a1", ""])
def test_nothing_outside_the_prefix_is_lent(key):
    async def read():
        async with lent(await filled()) as loan:
            borrowed = loan.borrowed
            for verb in (borrowed.get, borrowed.head, lambda key: borrowed.get_range(key, 0, 1)):
                with pytest.raises(PermissionDenied):
                    await verb(key)
            with pytest.raises(PermissionDenied):
                async for _ in borrowed.list(key):
                    pass

    asyncio.run(read())


def test_errors_of_the_store_are_told_as_such():
    async def read():
        async with lent(await filled()) as loan:
            borrowed = loan.borrowed
            with pytest.raises(NotFound):
                await borrowed.get("lake/none")
            with pytest.raises(Conflict):
                await borrowed.get_range("lake/a1", 0, 1, version="another")

    asyncio.run(read())


def test_nothing_is_written_not_even_by_a_borrower_that_makes_its_own_requests():
    async def write():
        store = await filled()
        before = {meta.key: meta.version async for page in store.list() for meta in page}
        async with lent(store) as loan:
            borrowed = loan.borrowed
            for attempt in (
                borrowed.put("lake/a1", b"x"),
                borrowed.put_if("lake/a1", b"x", version=None),
                borrowed.delete("lake/a1"),
                borrowed.delete_many(["lake/a1"]),
                borrowed.get_durable("lake/a1"),
                borrowed._ask(verb="put", key="lake/a1"),
                borrowed._ask(verb="delete", key="lake/a1"),
                borrowed._ask(verb="__init__"),
            ):
                with pytest.raises(PermissionDenied):
                    await attempt
        assert {meta.key: meta.version async for page in store.list() for meta in page} == before

    asyncio.run(write())


def test_a_snapshot_is_kept_by_the_lender_and_only_its_own_pin_is_given_up():
    async def keep():
        pins = Pins()
        await pins.pin({}, seconds=1)
        async with lent(await filled(), pins) as loan:
            borrowed = loan.borrowed
            name = await borrowed.pin({"": 3}, 5.0)
            assert pins.kept[name] == ({"": 3}, 5.0)
            with pytest.raises(PermissionDenied):
                await borrowed.unpin("pin-0")
            await borrowed.unpin(name)
            assert list(pins.kept) == ["pin-0"]
            await borrowed.pin({"": 3}, 1e12)
            assert max(seconds for _, seconds in pins.kept.values()) <= 24 * 3600

    asyncio.run(keep())


@pytest.mark.parametrize("garbage", [b"\xff" * 64, b"\0\0\0\4\0\0\0\0????", b"\0\0\0\1\0\0\0\1\x80x"])
def test_a_borrower_that_sends_garbage_is_lent_nothing_more(garbage):
    async def send():
        async with lent(await filled()) as loan:
            borrowed = loan.borrowed
            os.write(loan.requests, garbage)
            await asyncio.wait_for(asyncio.wait([loan.lending]), 30)
            with pytest.raises(Closed):
                await borrowed.get("lake/a1")

    asyncio.run(send())


def test_a_request_with_fields_that_nobody_knows_is_no_request():
    frame = encode_frame(StoreRequest(number=1, verb="get", key="lake/a1"))
    assert b"verb" in bytes(frame[1])

    async def send():
        async with lent(await filled()) as loan:
            body = bytes(frame[1]).replace(b"verb", b"vorb")
            os.write(loan.requests, bytes(frame[0]) + body)
            await asyncio.wait_for(asyncio.wait([loan.lending]), 30)

    asyncio.run(send())


# The real process ------------------------------------------------------------------------------------------


async def _registered(store):
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


@pytest.mark.processes
def test_a_real_process_answers_through_the_loan_now_and_as_of_a_position():
    async def ask():
        store = MemoryStore()
        catalog = await _registered(store)

        async def pins():
            return catalog

        processes = SqlProcesses(
            sql_command("memory://", "lake", worker_bounds(SqlConfig(), CatalogConfig())),
            environment=bare_environment({**os.environ, "AWS_SECRET_ACCESS_KEY": "of the store"}),
            lender=StoreLender(store, "lake", pins),
        )
        try:
            layers = dict(await processes.layers())
            first = await processes.query("select tenant, sum(v) s from mine group by 1", tenant="a")
            then = await processes.query("select count(*) n from mine", tenant="b", as_of=first.position)
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
        catalog = await _registered(store)

        async def pins():
            return catalog

        config = SqlConfig(answer_bytes_max=1 << 20, memory_bytes=16 << 20)
        processes = SqlProcesses(
            sql_command("memory://", "lake", worker_bounds(config, CatalogConfig())),
            config,
            environment=bare_environment(os.environ),
            lender=StoreLender(store, "lake", pins),
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
