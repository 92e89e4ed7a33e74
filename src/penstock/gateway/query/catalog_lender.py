"""The gateway's side of a loan: a SQL process is lent the files of the tenant whose query it answers, and nothing else.

The process asks for the files of a table between two times; the gateway plans, for the tenant that it asked the question
for, and from then until the answer lends the objects of just those files. A process that was taken over by what it reads
sees no object of another tenant, and nothing of the catalog itself, which names every tenant's files. Keeping a snapshot
from vacuum takes a write, which the lender makes: the borrower names the time, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from penstock.errors import InvalidInput, PenstockError, PermissionDenied
from penstock.gateway.query.sql_frames import (
    LENGTHS,
    LoanAnswer,
    LoanRequest,
    checked_lengths,
    encode_frame,
    named_error,
    read_header,
)
from penstock.objects import ObjectStore

if TYPE_CHECKING:
    from penstock.catalog import DataFile, Position
    from penstock.lake import SqlPin

__all__ = ["CatalogLender", "LendableCatalog", "Loan"]

# Requests of one borrower that are answered at once; others wait in the pipe.
_AT_ONCE_MAX: Final = 32
# A pin of a query that died ends by itself.
_PIN_SECONDS_MAX: Final = 24 * 3600.0
# Plans of more files are written down off the loop.
_INLINE_FILES_MAX: Final = 200


class LendablePlan(Protocol):
    """The files of a plan, and their paths, which are what is lent."""

    @property
    def files(self) -> list[DataFile]: ...

    @property
    def paths(self) -> list[str]: ...

    def __len__(self) -> int: ...


class LendableState(Protocol):
    """One state of a catalog."""

    @property
    def position(self) -> dict[str, int]: ...

    async def plan(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        tenant: str | None = None,
        table: str | None = None,
    ) -> LendablePlan: ...

    async def tables(self, *, tenant: str | None = None) -> list[str]: ...


class LendableCatalog(Protocol):
    """What plans and pins; a catalog does."""

    async def hold(self, position: Position | None = None) -> LendableState: ...

    async def pin(self, position: Position, *, seconds: float, name: str | None = None) -> SqlPin: ...

    async def unpin(self, name: str) -> None: ...


class Loan:
    """What one process may have: nothing but while it answers a question, and then what was planned for it."""

    def __init__(self) -> None:
        self.tenant: str | None = None
        self.held: LendableState | None = None
        self.paths: set[str] = set()
        self.pinned: set[str] = set()

    @contextmanager
    def of(self, tenant: str) -> Iterator[None]:
        """While a question of this tenant is answered."""
        self.tenant = tenant
        try:
            yield
        finally:
            self.tenant = self.held = None
            self.paths.clear()
            self.pinned.clear()


_Outcome = tuple[LoanAnswer, bytes]


class CatalogLender:
    """Answers for the catalog below `prefix` of `store`, until the pipe of a borrower ends."""

    def __init__(self, store: ObjectStore, prefix: str, catalog: Callable[[], Awaitable[LendableCatalog]]) -> None:
        self._store, self._prefix, self._catalog = store, prefix.rstrip("/") + "/", catalog
        self._verbs: dict[str, Callable[[LoanRequest, Loan], Awaitable[_Outcome]]] = {
            "hold": self._hold,
            "plan": self._plan,
            "tables": self._tables,
            "read": self._read,
            "pin": self._pin,
            "unpin": self._unpin,
        }

    async def serve(self, loan: Loan, requests: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        room, turn = asyncio.Semaphore(_AT_ONCE_MAX), asyncio.Lock()
        under_way: set[asyncio.Task[None]] = set()

        async def answer(request: LoanRequest) -> None:
            try:
                header, body = await self._answered(request, loan)
                async with turn:
                    answers.writelines([bytes(part) for part in encode_frame(header, body)])
                    with suppress(ConnectionError):
                        await answers.drain()
            finally:
                room.release()

        try:
            while (request := await _next_request(requests)) is not None:
                await room.acquire()
                task = asyncio.ensure_future(answer(request))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
        finally:
            for task in under_way:
                task.cancel()
            answers.close()

    async def _answered(self, request: LoanRequest, loan: Loan) -> _Outcome:
        try:
            if loan.tenant is None:
                raise PermissionDenied("nothing can be read", "no query is running")
            verb = self._verbs.get(request.verb)
            if verb is None:
                raise PermissionDenied(f"{request.verb[:40]!r} is not lent", "a query only reads")
            header, body = await verb(request, loan)
            return msgspec.structs.replace(header, number=request.number), body
        except PenstockError as error:
            return LoanAnswer(number=request.number, **named_error(error)), b""

    async def _hold(self, request: LoanRequest, loan: Loan) -> _Outcome:
        loan.held = await (await self._catalog()).hold(request.as_of)
        return LoanAnswer(number=0, position=loan.held.position), b""

    async def _plan(self, request: LoanRequest, loan: Loan) -> _Outcome:
        held, tenant = loan.held, loan.tenant
        if held is None or not request.table:
            raise InvalidInput("the plan request is incomplete", "it needs a state of the catalog and a table")
        plan = await held.plan(request.start, request.end, table=request.table, tenant=tenant)
        if loan.tenant != tenant:
            raise PermissionDenied("nothing can be read", "the query has ended")
        loan.paths.update(plan.paths)

        def encoded() -> bytes:
            return msgspec.msgpack.encode(plan.files)

        body = encoded() if len(plan) <= _INLINE_FILES_MAX else await asyncio.to_thread(encoded)
        return LoanAnswer(number=0), body

    async def _tables(self, _request: LoanRequest, loan: Loan) -> _Outcome:
        held, tenant = loan.held, loan.tenant
        if held is None:
            raise InvalidInput("the request for tables is incomplete", "it needs a state of the catalog")
        names = await held.tables(tenant=tenant)
        if loan.tenant != tenant:
            raise PermissionDenied("nothing can be read", "the query has ended")
        return LoanAnswer(number=0), msgspec.msgpack.encode(names)

    async def _read(self, request: LoanRequest, loan: Loan) -> _Outcome:
        key = request.key
        if not key.startswith(self._prefix) or key[len(self._prefix) :] not in loan.paths:
            raise PermissionDenied(f"the object {key[:120]!r} is not lent", "no plan of this query lists it")
        return LoanAnswer(number=0), await self._store.get_range(key, request.start or 0, request.end or 0)

    async def _pin(self, request: LoanRequest, loan: Loan) -> _Outcome:
        if loan.held is None or loan.pinned:
            raise PermissionDenied("the state cannot be pinned", "a query may pin only the state that it reads, once")
        seconds = min(request.seconds, _PIN_SECONDS_MAX)
        made = await (await self._catalog()).pin(loan.held.position, seconds=seconds)
        loan.pinned.add(made.name)
        return LoanAnswer(number=0, text=made.name), b""

    async def _unpin(self, request: LoanRequest, loan: Loan) -> _Outcome:
        if request.key not in loan.pinned:
            raise PermissionDenied("the pin belongs to another query")
        await (await self._catalog()).unpin(request.key)
        return LoanAnswer(number=0), b""


async def _next_request(requests: asyncio.StreamReader) -> LoanRequest | None:
    try:
        head, _ = checked_lengths(await requests.readexactly(LENGTHS.size), 0)
        return read_header(await requests.readexactly(head), LoanRequest)
    except (asyncio.IncompleteReadError, ConnectionError, PenstockError):
        # Whoever sends what is no request is lent nothing more.
        return None
