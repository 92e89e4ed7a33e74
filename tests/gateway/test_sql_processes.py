"""SQL in processes of its own: answered there, and ended there, whatever a query does."""

import asyncio
import os
import sys

import pyarrow as pa
import pytest

from penstock.errors import AtCapacity, Corrupt, DeadlineExceeded, InvalidInput, NotFound, PenstockError, Unavailable
from penstock.gateway import SqlProcesses
from penstock.gateway.query.sql_frames import LENGTHS, SqlReply, checked_lengths, read_answer, read_header, reply
from penstock.lake import SqlAnswer, SqlConfig

pytestmark = pytest.mark.processes

# A process whose engine does what it is asked for by name.
WORKER = """
import asyncio, os, sys, time
import pyarrow as pa
from penstock.errors import NotFound
from penstock.gateway.query.sql_worker import OVER_MEMORY, answer_questions, bound_process
from penstock.lake import SqlAnswer, SqlConfig

served = set()

class Told:
    async def query(self, sql, *, tenant=None, as_of=None, rows_max=None, seconds_max=None):
        if sql == "hang":
            time.sleep(600)
        if sql == "die":
            os._exit(7)
        if sql == "swell":
            os._exit(OVER_MEMORY)
        if sql == "missing":
            raise NotFound("there is no table", "none was made", "make one")
        if sql == "hold":
            bytearray(8 << 30)
        if sql == "write":
            with open(os.environ["WRITTEN"], "wb") as file:
                file.write(bytes(16 << 20))
        served.add(tenant)
        table = pa.table({"tenant": [tenant], "pid": [os.getpid()], "served": [sorted(served)]})
        return SqlAnswer(table=table, is_cut=False, position={"": 3}, files=1, plan_seconds=0.0, seconds=0.0)

bound_process(SqlConfig(memory_bytes=1 << 20))
asyncio.run(answer_questions(Told(), sys.stdin.buffer, os.fdopen(os.dup(1), "wb")))
"""


def asked(work, **config):
    async def session():
        processes = SqlProcesses((sys.executable, "-c", WORKER), SqlConfig(**config))
        try:
            return await work(processes)
        finally:
            await processes.close()
            assert processes.pids == []

    return asyncio.run(session())


def test_a_process_answers_one_query_after_the_other_with_rows_or_errors():
    async def work(processes):
        first = await processes.query("rows", tenant="a")
        with pytest.raises(NotFound, match="there is no table"):
            await processes.query("missing", tenant="a")
        second = await processes.query("rows", tenant="a")
        return first, second

    first, second = asked(work)
    assert (first.table["tenant"].to_pylist(), first.position) == (["a"], {"": 3})
    assert second.table["tenant"].to_pylist() == ["a"]
    assert first.table["pid"] == second.table["pid"] != os.getpid()


@pytest.mark.parametrize("at_once", [1, 3])
def test_no_process_answers_two_tenants(at_once):
    """Each process tells whom it has answered; tenants come in turn, alone and together."""

    async def work(processes):
        await processes.layers()
        told = []
        for tenants in ("a", "b", "ab", "bba"):
            told += await asyncio.gather(*[processes.query("served", tenant=tenant) for tenant in tenants])
            assert len(processes.pids) <= at_once
        return [(one.table["tenant"][0].as_py(), one.table["served"][0].as_py()) for one in told]

    told = asked(work, queries_at_once=at_once)
    assert [tenant for tenant, _ in told] == list("ababbba")
    assert all(served == [tenant] for tenant, served in told)


def test_of_the_idle_processes_the_one_that_was_used_last_is_kept():
    async def work(processes):
        pids = {}
        for tenant in "abc":
            pids[tenant] = (await processes.query("rows", tenant=tenant)).table["pid"][0].as_py()
        again = {tenant: (await processes.query("rows", tenant=tenant)).table["pid"][0].as_py() for tenant in "cb"}
        return pids, again

    pids, again = asked(work, queries_at_once=2)
    assert again == {"c": pids["c"], "b": pids["b"]}


def test_a_query_out_of_time_is_ended_with_its_process_and_the_next_has_another():
    async def work(processes):
        before = (await processes.query("rows", tenant="a")).table["pid"].to_pylist()
        with pytest.raises(DeadlineExceeded, match="process was killed"):
            await processes.query("hang", tenant="a", seconds_max=0.1)
        assert processes.pids == []
        after = (await processes.query("rows", tenant="a")).table["pid"].to_pylist()
        return before, after

    before, after = asked(work)
    assert before != after
    with pytest.raises(ProcessLookupError):
        os.kill(before[0], 0)


def test_a_query_whose_caller_goes_away_is_ended():
    async def work(processes):
        await processes.query("rows", tenant="a")
        asking = asyncio.ensure_future(processes.query("hang", tenant="a"))
        while not processes._busy:  # noqa: ASYNC110 - nothing tells when a process is busy
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert processes.pids == []

    asked(work)


def test_a_query_that_ends_its_process_is_told_and_others_go_on(tmp_path, monkeypatch):
    monkeypatch.setenv("WRITTEN", str(tmp_path / "written"))

    async def work(processes):
        with pytest.raises(AtCapacity, match="exit code 7"):
            await processes.query("die", tenant="a")
        with pytest.raises(AtCapacity, match="memory_bytes = 1,073,741,824"):
            await processes.query("swell", tenant="a")
        with pytest.raises(AtCapacity, match="too much memory"):
            await processes.query("hold", tenant="a")
        with pytest.raises(PenstockError):
            await processes.query("write", tenant="a")
        assert (tmp_path / "written").stat().st_size <= 4 << 20
        return await processes.query("rows", tenant="a")

    assert asked(work).table.num_rows == 1


def test_no_more_queries_run_at_once_than_are_configured():
    async def work(processes):
        first = asyncio.ensure_future(processes.query("hang", tenant="a", seconds_max=30))
        while not processes._busy:  # noqa: ASYNC110 - nothing tells when a process is busy
            await asyncio.sleep(0)
        with pytest.raises(DeadlineExceeded, match="not started"):
            await processes.query("rows", tenant="a", seconds_max=0.05)
        first.cancel()

    asked(work, queries_at_once=1)


def test_a_tenant_leaves_a_place_to_others():
    async def work(processes):
        slow = [asyncio.ensure_future(processes.query("hang", tenant="a", seconds_max=600)) for _ in range(3)]
        while not processes._busy:  # noqa: ASYNC110 - nothing tells when a process is busy
            await asyncio.sleep(0)
        other = await processes.query("rows", tenant="b")
        for one in slow:
            one.cancel()
        await asyncio.wait(slow)
        return other

    assert asked(work, queries_at_once=2).table["tenant"].to_pylist() == ["b"]


def test_a_process_that_cannot_start_is_told():
    async def work():
        processes = SqlProcesses((sys.executable, "-c", "raise SystemExit(3)"))
        with pytest.raises(Unavailable, match="did not start"):
            await processes.query("rows", tenant="a")
        missing = SqlProcesses(("/nowhere/penstock",))
        with pytest.raises(Unavailable, match="can be started"):
            await missing.query("rows", tenant="a")

    asyncio.run(work())


def test_frames_carry_answers_and_errors_of_the_house():
    answer = SqlAnswer(
        table=pa.table({"n": [1, 2]}), is_cut=True, position={"": 1}, files=2, plan_seconds=0.1, seconds=0.2
    )
    lengths, head, body = map(bytes, reply(answer))
    assert checked_lengths(lengths) == (len(head), len(body))
    assert read_answer(read_header(head, SqlReply), body) == answer
    _, head, body = map(bytes, reply(InvalidInput("what", "why", "remedy")))
    with pytest.raises(InvalidInput, match="what"):
        read_answer(read_header(head, SqlReply), body)


def test_frames_that_announce_too_much_or_hold_garbage_are_refused():
    with pytest.raises(Corrupt, match="too large"):
        checked_lengths(LENGTHS.pack(1 << 31, 0))
    with pytest.raises(Corrupt, match="too large"):
        checked_lengths(LENGTHS.pack(10, 1), 0)
    with pytest.raises(Corrupt, match="cannot be read"):
        read_header(b"\xc1", SqlReply)
    with pytest.raises(PenstockError):
        read_answer(SqlReply(error="no_such_error", what="x"), b"")
