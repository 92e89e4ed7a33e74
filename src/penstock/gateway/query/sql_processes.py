"""SQL in processes of its own: a query that takes too long, or too much, ends its process and nothing else.

Processes are started when they are needed, up to `queries_at_once`, and kept for the next query of the same tenant: a
process never answers two tenants, so that whatever a query may leave behind is found by nobody else. One that is out of
time, or whose caller went away, is killed whole: nothing of it is left to be interrupted.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final
from weakref import WeakValueDictionary

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import AtCapacity, Closed, DeadlineExceeded, Unavailable
from penstock.gateway.query.catalog_lender import CatalogLender, Loan
from penstock.gateway.query.sql_frames import (
    LENGTHS,
    SqlQuestion,
    SqlReply,
    checked_lengths,
    encode_frame,
    read_answer,
    read_header,
)
from penstock.gateway.query.sql_worker import OVER_MEMORY
from penstock.lake import SqlAnswer, SqlConfig
from penstock.observability import SILENT, Observer, names

__all__ = ["SqlProcesses"]

# Between the end of a query's time, which its process tells by itself, and the end of its process.
_GRACE_SECONDS: Final = 1.0
_START_SECONDS_MAX: Final = 60.0
_PADDING_BYTES_MAX: Final = 16 << 20


class SqlProcesses:
    """`command` starts a process that answers on its pipes; `environment` is what it is given of ours.

    With a `lender` a process plans and reads through two more pipes, whose numbers follow `--lent` on its command line.
    """

    def __init__(
        self,
        command: Sequence[str],
        config: SqlConfig | None = None,
        *,
        environment: dict[str, str] | None = None,
        lender: CatalogLender | None = None,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
    ) -> None:
        self._command, self._config = tuple(command), config or SqlConfig()
        self._environment, self._clock, self._observer = environment, clock, observer
        self._lender = lender
        self._rooms = _Rooms(self._config.queries_at_once)
        self._idle: list[_SqlProcess] = []
        self._busy: set[_SqlProcess] = set()
        self._starting = 0
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """Of the processes that live now."""
        return [one.pid for one in (*self._idle, *self._busy)]

    async def query(
        self,
        sql: str,
        *,
        tenant: str | None = None,
        as_of: int | dict[str, int] | None = None,
        rows_max: int | None = None,
        seconds_max: float | None = None,
    ) -> SqlAnswer:
        """Answer one SELECT over the tables of a tenant."""
        assert tenant is not None, "the gateway asks for one tenant"
        seconds = self._config.seconds_max if seconds_max is None else min(seconds_max, self._config.seconds_max)
        question = SqlQuestion(sql=sql, tenant=tenant, as_of=as_of, rows_max=rows_max, seconds_max=seconds)
        began, outcome = self._clock.monotonic(), "failed"
        try:
            async with self._rooms.place(tenant, seconds):
                answer = await self._answered(question)
            outcome = "answered"
            self._observer.observe(names.SQL_PLAN_SECONDS, answer.plan_seconds)
            return answer
        finally:
            self._observer.count(names.SQL_QUERIES, 1, outcome=outcome)
            self._observer.observe(names.SQL_SECONDS, self._clock.monotonic() - began)

    async def layers(self) -> list[tuple[str, str]]:
        """What confines a process here, each part with why it is missing where it is."""
        process = await self._process(None)
        self._idle.append(process)
        return process.layers

    async def close(self) -> None:
        self._closed = True
        for process in (*self._idle, *self._busy):
            await process.kill()
        self._idle.clear()

    async def _answered(self, question: SqlQuestion) -> SqlAnswer:
        process = await self._process(question.tenant)
        self._busy.add(process)
        is_whole = False
        try:
            async with asyncio.timeout(question.seconds_max + _GRACE_SECONDS):
                header, body = await process.ask(question)
            is_whole = True
        except TimeoutError:
            raise DeadlineExceeded(
                "the query's process was killed",
                f"it took longer than {question.seconds_max:g} s",
                "narrow its time range, or allow more with seconds_max",
            ) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise self._ended(await process.kill()) from None
        finally:
            self._busy.discard(process)
            if is_whole and not self._closed:
                self._idle.append(process)
            else:
                await process.kill()
        return read_answer(header, body)

    def _ended(self, code: int) -> AtCapacity:
        remedy = "narrow it, or raise memory_bytes"
        if code == OVER_MEMORY:
            why = f"its process held more than memory_bytes = {self._config.memory_bytes:,} allows"
            return AtCapacity("the query needs too much memory", why, remedy)
        why = f"exit code {code}: most likely it needed more memory than it may have"
        return AtCapacity("the query crashed its process", why, remedy)

    async def _process(self, tenant: str | None) -> _SqlProcess:
        """One that has served this tenant or nobody."""
        process = self._kept(tenant)
        if process is None:
            await self._make_room()
            process = await self._started()
        process.tenant = tenant
        return process

    def _kept(self, tenant: str | None) -> _SqlProcess | None:
        self._idle = [one for one in self._idle if one.is_alive]
        for wanted in (tenant, None):
            for number, process in enumerate(self._idle):
                if process.tenant == wanted:
                    return self._idle.pop(number)
        return None

    async def _make_room(self) -> None:
        """End the process that has been idle for longest, where there are as many as there may be."""
        while self._idle and len(self._idle) + len(self._busy) + self._starting >= self._config.queries_at_once:
            await self._idle.pop(0).kill()

    async def _started(self) -> _SqlProcess:
        if self._closed:
            raise Closed("the gateway is closed", "it accepts no more queries")
        self._starting += 1
        try:
            return await _SqlProcess.start(self._command, self._environment, self._lender, self._config)
        except OSError as error:
            raise Unavailable("no SQL process can be started", str(error), "try again") from error
        finally:
            self._starting -= 1


class _Rooms:
    """Places among the queries at once, of which one tenant never has all, waited for no longer than a query may take."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._all = asyncio.Semaphore(count)
        # Those that somebody asks under, or waits for.
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def place(self, tenant: str, seconds: float) -> AsyncIterator[None]:
        share = self._shares.setdefault(tenant, asyncio.Semaphore(max(1, self._count - 1)))
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(seconds):
                    await held.enter_async_context(share)
                    await held.enter_async_context(self._all)
            except TimeoutError:
                raise DeadlineExceeded("the query was not started", "too many others are running") from None
            yield


class _SqlProcess:
    """One process and its pipes."""

    def __init__(
        self, process: asyncio.subprocess.Process, lending: asyncio.Task[None] | None, loan: Loan, config: SqlConfig
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._in, self._out = process, process.stdin, process.stdout
        self._lending, self._loan = lending, loan
        # Arrow aligns and pads what it sends.
        self._body_bytes_max = 2 * config.answer_bytes_max + _PADDING_BYTES_MAX
        self.layers: list[tuple[str, str]] = []
        # Whose queries it answers; None until the first.
        self.tenant: str | None = None

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        environment: dict[str, str] | None,
        lender: CatalogLender | None,
        config: SqlConfig,
    ) -> _SqlProcess:
        """Returns once it is ready; its start does not count as time of a query."""
        pipe = asyncio.subprocess.PIPE
        loan = Loan()
        async with _lent_pipes(lender, loan) as (numbers, lending):
            lent = ("--lent", ",".join(map(str, numbers))) if numbers else ()
            # A session of its own, so that it is killed with whatever it may have started.
            process = await asyncio.create_subprocess_exec(
                *(*command, *lent), stdin=pipe, stdout=pipe, env=environment, start_new_session=True, pass_fds=numbers
            )
            started = cls(process, lending, loan, config)
        try:
            async with asyncio.timeout(_START_SECONDS_MAX):
                started.layers = (await started._reply())[0].layers
        except (TimeoutError, asyncio.IncompleteReadError):
            raise Unavailable(
                "a SQL process did not start", f"exit code {await started.kill()}", "see the log"
            ) from None
        except BaseException:
            await started.kill()
            raise
        return started

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    async def ask(self, question: SqlQuestion) -> tuple[SqlReply, bytes]:
        with self._loan.of(question.tenant):
            self._in.writelines([bytes(part) for part in encode_frame(question)])
            await self._in.drain()
            return await self._reply()

    async def _reply(self) -> tuple[SqlReply, bytes]:
        head, body = checked_lengths(await self._out.readexactly(LENGTHS.size), self._body_bytes_max)
        header = read_header(await self._out.readexactly(head), SqlReply)
        return header, await self._out.readexactly(body)

    async def kill(self) -> int:
        """End it, with everything that it started; its exit code."""
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        code = await self._process.wait()
        self._in.close()
        if self._lending is not None:
            self._lending.cancel()
            await asyncio.wait([self._lending])
        return code


@asynccontextmanager
async def _lent_pipes(
    lender: CatalogLender | None, loan: Loan
) -> AsyncIterator[tuple[tuple[int, ...], asyncio.Task[None] | None]]:
    """The descriptors of the borrower, which are closed here at the end, and the task that answers it."""
    if lender is None:
        yield (), None
        return
    (answers_in, answers_out), (requests_in, requests_out) = os.pipe(), os.pipe()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(requests_in, "rb", 0))
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(answers_out, "wb", 0)
    )
    lending = asyncio.ensure_future(lender.serve(loan, reader, asyncio.StreamWriter(transport, protocol, None, loop)))
    try:
        yield (answers_in, requests_out), lending
    except BaseException:
        lending.cancel()
        raise
    finally:
        os.close(answers_in)
        os.close(requests_out)
