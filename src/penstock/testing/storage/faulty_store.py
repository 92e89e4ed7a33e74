"""An object store that fails as real ones do, on the way to it and on the way back, never in itself.

Which faults may be injected where:

```
process            crash before a request leaves it; crash after its write landed, before the answer
process → store    latency, throttling, a refused connection (definite: nothing landed),
                   a lost request (never lands), a zombie (lands long after the caller gave up)
in the store       none: the inner store stays linearizable, each verb lands whole at one moment.
                   The one exception is `delete_many`, which may land in part when its answer is lost
store → process    latency, so answers overtake each other; a broken connection after the request
                   landed; an answer that never comes
never              a lie: no success for what did not land, no `Conflict` for what did, no stale read,
                   no ignored condition, no altered body. Stores that lie are in `hostile_stores`
```
A caller that gets no answer is told `OutcomeUnknown` for a write, as the stores themselves would tell
it, and `Unavailable` for a read. A request under way belongs to the network: when its caller is
cancelled or its process crashes, the entropy decides whether it still lands.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from penstock.clock import Clock
from penstock.errors import OutcomeUnknown, PenstockError, Unavailable
from penstock.objects import Body, Object, ObjectMeta, ObjectStore
from penstock.testing.entropy import SeededEntropy
from penstock.testing.process import Process, current_process, outside
from penstock.testing.storage.faults import WRITES, Course, Fate, FaultPlan

__all__ = ["FaultyStore"]

T = TypeVar("T")

# Named here because the verb `list` shadows the type inside the class.
_Page: TypeAlias = list[ObjectMeta]


class FaultyStore:
    """The port over another store, with a plan of faults. `faults` may be replaced at any time.

    `fates` counts what befell the requests; `script` decides the fate of the next ones by hand.
    """

    def __init__(self, inner: ObjectStore, faults: FaultPlan, *, entropy: SeededEntropy, clock: Clock) -> None:
        self.url = inner.url
        self.faults = faults
        self.fates: Counter[Fate] = Counter()
        self._inner = inner
        self._entropy = entropy
        self._clock = clock
        self._scripts: dict[str, deque[Fate]] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    def script(self, verb: str, *fates: Fate) -> None:
        """The next requests of this verb meet these fates, in order, whatever the plan says."""
        self._scripts.setdefault(verb, deque()).extend(fates)

    async def settle(self) -> None:
        """Wait until no request is under way, zombies included."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def get(self, key: str) -> Object:
        return await self._send("get", key, lambda _: self._inner.get(key))

    async def get_durable(self, key: str) -> Object:
        return await self._send("get_durable", key, lambda _: self._inner.get_durable(key))

    async def get_if_changed(self, key: str, *, version: str) -> Object | None:
        """To a plan and to a script it is one more `get`."""
        return await self._send("get", key, lambda _: self._inner.get_if_changed(key, version=version))

    async def get_range(self, key: str, start: int, end: int, *, version: str | None = None) -> bytes:
        return await self._send("get_range", key, lambda _: self._inner.get_range(key, start, end, version=version))

    async def get_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], *, version: str | None = None
    ) -> list[bytes]:
        return await self._send("get_ranges", key, lambda _: self._inner.get_ranges(key, ranges, version=version))

    async def head(self, key: str) -> ObjectMeta:
        return await self._send("head", key, lambda _: self._inner.head(key))

    async def put(self, key: str, data: Body) -> ObjectMeta:
        body = bytes(data)  # the caller may use its buffer again while a zombie is under way
        return await self._send("put", key, lambda _: self._inner.put(key, body))

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        body = bytes(data)
        return await self._send("put_if", key, lambda _: self._inner.put_if(key, body, version=version))

    async def list(self, prefix: str = "", *, offset: str = "", page_size: int = 1000) -> AsyncIterator[_Page]:
        """Each page is a request of its own, and sees the store as it is when that request lands."""
        while page := await self._page(prefix, offset, page_size):
            yield page
            offset = page[-1].key

    async def delete(self, key: str) -> None:
        await self._send("delete", key, lambda _: self._inner.delete(key))

    async def delete_many(self, keys: Iterable[str]) -> None:
        doomed = tuple(keys)

        async def land(fate: Fate) -> None:
            whole = fate is Fate.SERVED
            await self._inner.delete_many([key for key in doomed if whole or self._entropy.chance(0.5)])

        await self._send("delete_many", ", ".join(doomed[:3]), land)

    async def close(self) -> None:
        await self._inner.close()

    async def _page(self, prefix: str, offset: str, page_size: int) -> _Page:
        async def land(_: Fate) -> _Page:
            async for page in self._inner.list(prefix, offset=offset, page_size=page_size):
                return page
            return []

        return await self._send("list", prefix, land)

    async def _send(self, verb: str, key: str, land: Callable[[Fate], Awaitable[T]]) -> T:
        loop, process = asyncio.get_running_loop(), current_process()
        fate = self._fate(verb, process)
        reply: asyncio.Future[T] = loop.create_future()
        request = _Request(verb, key, land, fate, process, reply)
        course = self.faults.course(verb, fate, self._entropy)
        # Outside of all processes: neither a crash nor a cancellation of the caller stops it on its way.
        self._under_way.add(loop.create_task(self._carry(request, course), context=outside()))
        return await reply

    def _fate(self, verb: str, process: Process | None) -> Fate:
        script = self._scripts.get(verb)
        fate = script.popleft() if script else self.faults.fate(verb, self._entropy)
        if process is None and fate.deadly:
            # The world around the processes cannot die; its connections can.
            fate = Fate.ERROR_BEFORE if fate is Fate.CRASH_BEFORE else Fate.ERROR_AFTER
        self.fates[fate] += 1
        return fate

    async def _carry(self, request: _Request[Any], course: Course) -> None:
        try:
            if course.lands is not None and course.lands <= course.answers:
                await self._clock.sleep(course.lands)
                outcome = await self._land(request)
                await self._clock.sleep(course.answers - course.lands)
                self._answer(request, outcome)
                return
            await self._clock.sleep(course.answers)
            self._answer(request, None)
            if course.lands is not None:
                await self._clock.sleep(course.lands - course.answers)
                await self._land(request)
        finally:
            # Here and not in a done callback, which would cost the loop a step for every request.
            self._under_way.discard(asyncio.current_task())

    async def _land(self, request: _Request[T]) -> T | Exception:
        """Let the inner store do it, and hand back its answer, be it an error."""
        if request.abandoned and self._entropy.chance(0.5):
            return self._silence(request)
        try:
            return await request.land(request.fate)
        except Exception as error:  # noqa: BLE001  the caller's to handle, also if it is a bug of the inner store
            return error

    def _answer(self, request: _Request[T], outcome: T | Exception | None) -> None:
        if request.process is not None and request.fate.deadly:
            request.process.crash()
        if request.abandoned or request.reply.done():
            return
        answer = outcome if request.fate is Fate.SERVED else self._silence(request)
        if isinstance(answer, Exception):
            request.reply.set_exception(answer)
        else:
            request.reply.set_result(answer)  # type: ignore[arg-type]

    def _silence(self, request: _Request[Any]) -> PenstockError:
        what = f"{request.verb} {request.key!r} in {self.url} got no answer"
        why = f"injected fault: {request.fate.value}"
        if request.verb in WRITES and not request.fate.definite:
            return OutcomeUnknown(what, why, "read it again, then decide")
        return Unavailable(what, why, "try again")


@dataclass(frozen=True, slots=True, eq=False)
class _Request(Generic[T]):
    """A verb on its way: what it does where it lands, what befalls it, who asked and where the answer goes."""

    verb: str
    key: str
    land: Callable[[Fate], Awaitable[T]]
    fate: Fate
    process: Process | None
    reply: asyncio.Future[T]

    @property
    def abandoned(self) -> bool:
        return self.reply.cancelled() or (self.process is not None and not self.process.alive)
