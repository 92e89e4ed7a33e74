"""A store that tries again: full jitter and a deadline for everything that may be repeated.

Reads, unconditional puts and deletes are repeated, because a second one does no harm. A conditional
write is sent exactly once: repeated after it landed, it would report a conflict with itself.
Each verb is counted and timed here, so every backend is observed alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from penstock.clock import SYSTEM_CLOCK, Clock, Deadline
from penstock.errors import DeadlineExceeded, InvalidInput, OutcomeUnknown, PenstockError, Unavailable
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.objects.port import Body, Object, ObjectMeta, ObjectStore, check_keys
from penstock.observability import SILENT, Observer, names

__all__ = ["DEFAULT_RETRY", "Repeater", "RetryPolicy", "RetryingStore"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long, and how often, to retry."""

    # Time limit of a call with its retries, in seconds: long enough for a store to recover, short enough to
    # report a dead one.
    deadline_seconds: float = 60.0
    # First pause between two attempts, in seconds, with jitter.
    pause_seconds_first: float = 0.1
    # Longest pause between two attempts, in seconds.
    pause_seconds_max: float = 5.0

    def __post_init__(self) -> None:
        for name in ("deadline_seconds", "pause_seconds_first", "pause_seconds_max"):
            if not getattr(self, name) > 0:
                raise InvalidInput(f"retry policy {name} = {getattr(self, name)}", "it must be above zero")

    def pause_seconds(self, retry: int, entropy: Entropy) -> float:
        """Anything from nothing to a bound that doubles: callers that failed together come back apart."""
        # Past 30 doublings the bound is long reached, and 2 ** retry would grow without end.
        return entropy.uniform(0.0, min(self.pause_seconds_max, self.pause_seconds_first * 2 ** min(retry, 30)))


DEFAULT_RETRY: Final = RetryPolicy()


class RetryingStore:
    """The port over another store, with patience. Without a policy it only counts and times."""

    def __init__(
        self,
        store: ObjectStore,
        policy: RetryPolicy | None = DEFAULT_RETRY,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> None:
        self.url = store.url
        self._store = store
        self._observer = observer
        self._repeater = Repeater(policy, clock=clock, entropy=entropy, observer=observer)

    async def get(self, key: str) -> Object:
        found = await self._read("get", key, lambda: self._store.get(key))
        self._observer.count(names.OBJECTS_BYTES, found.meta.size, direction="read")
        return found

    async def get_durable(self, key: str) -> Object:
        found = await self._write("get_durable", key, lambda: self._store.get_durable(key))
        self._observer.count(names.OBJECTS_BYTES, found.meta.size, direction="read")
        return found

    async def get_if_changed(self, key: str, *, version: str) -> Object | None:
        found = await self._read("get_if_changed", key, lambda: self._store.get_if_changed(key, version=version))
        if found is not None:
            self._observer.count(names.OBJECTS_BYTES, found.meta.size, direction="read")
        return found

    async def get_range(self, key: str, start: int, end: int, *, version: str | None = None) -> bytes:
        data = await self._read("get_range", key, lambda: self._store.get_range(key, start, end, version=version))
        self._observer.count(names.OBJECTS_BYTES, len(data), direction="read")
        return data

    async def get_ranges(
        self, key: str, ranges: Sequence[tuple[int, int]], *, version: str | None = None
    ) -> list[bytes]:
        pieces = await self._read("get_ranges", key, lambda: self._store.get_ranges(key, ranges, version=version))
        self._observer.count(names.OBJECTS_BYTES, sum(map(len, pieces)), direction="read")
        return pieces

    async def head(self, key: str) -> ObjectMeta:
        return await self._read("head", key, lambda: self._store.head(key))

    async def put(self, key: str, data: Body) -> ObjectMeta:
        meta = await self._write("put", key, lambda: self._store.put(key, data))
        self._observer.count(names.OBJECTS_BYTES, meta.size, direction="written")
        return meta

    async def put_if(self, key: str, data: Body, *, version: str | None) -> ObjectMeta:
        with self._repeater.observed("put_if"):
            meta = await self._store.put_if(key, data, version=version)
        self._observer.count(names.OBJECTS_BYTES, meta.size, direction="written")
        return meta

    async def list(
        self, prefix: str = "", *, offset: str = "", page_size: int = 1000
    ) -> AsyncIterator[list[ObjectMeta]]:
        listing = _Listing(self._store, prefix, offset, page_size)
        while page := await self._read("list", prefix, listing.next_page):
            yield page

    async def delete(self, key: str) -> None:
        await self._write("delete", key, lambda: self._store.delete(key))

    async def delete_many(self, keys: Iterable[str]) -> None:
        doomed = check_keys(keys)
        await self._write("delete_many", f"{len(doomed)} objects", lambda: self._store.delete_many(doomed))

    async def close(self) -> None:
        await self._store.close()

    async def _read(self, verb: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        return await self._repeater.run(verb, f"{key!r} in {self.url}", call, is_write=False)

    async def _write(self, verb: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        return await self._repeater.run(verb, f"{key!r} in {self.url}", call, is_write=True)


class Repeater:
    """Repeats one call until it succeeds, fails for good, or its time is up; counts and times it as a whole.

    Without a policy, a call is made once, takes as long as it takes, and raises what it raises.
    """

    def __init__(
        self,
        policy: RetryPolicy | None = DEFAULT_RETRY,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        observer: Observer = SILENT,
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._entropy = entropy
        self._observer = observer

    async def run(self, verb: str, what: str, call: Callable[[], Awaitable[T]], *, is_write: bool) -> T:
        with self.observed(verb):
            if self._policy is None:
                return await call()
            return await self._repeat(self._policy, verb, what, call, is_write)

    async def _repeat(
        self, policy: RetryPolicy, verb: str, what: str, call: Callable[[], Awaitable[T]], is_write: bool
    ) -> T:
        deadline = Deadline(self._clock, policy.deadline_seconds)
        may_have_landed = False
        retries = 0
        answer = ""
        while True:
            try:
                async with asyncio.timeout(deadline.remaining):
                    return await call()
            except (Unavailable, OutcomeUnknown, TimeoutError) as error:
                may_have_landed |= is_write and not isinstance(error, Unavailable)
                # An attempt that the deadline cut short says nothing; the one before it may have said why.
                answer = str(error) or answer
                pause = policy.pause_seconds(retries, self._entropy)
                if pause >= deadline.remaining:
                    why = f"{retries} retries within {policy.deadline_seconds:g} s; the last answer: {answer or 'none'}"
                    raise _given_up(f"{verb} of {what}", why, may_have_landed) from error
            await self._clock.sleep(pause)
            retries += 1
            self._observer.count(names.OBJECTS_RETRIES, verb=verb)

    @contextmanager
    def observed(self, verb: str) -> Iterator[None]:
        started = self._clock.monotonic()
        outcome = "ok"
        try:
            yield
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            self._observer.count(names.OBJECTS_REQUESTS, verb=verb, outcome=outcome)
            self._observer.observe(names.OBJECTS_REQUEST_SECONDS, self._clock.monotonic() - started, verb=verb)


def _given_up(what: str, why: str, may_have_landed: bool) -> PenstockError:
    if may_have_landed:
        return OutcomeUnknown(f"{what} did not succeed", why, "read it again before deciding")
    return DeadlineExceeded(f"{what} did not succeed", why, "try again later")


class _Listing:
    """A listing that can be taken up again behind the last key it gave out."""

    def __init__(self, store: ObjectStore, prefix: str, offset: str, page_size: int) -> None:
        self._store = store
        self._prefix = prefix
        self._offset = offset
        self._page_size = page_size
        self._pages = self._open()

    def _open(self) -> AsyncIterator[list[ObjectMeta]]:
        return self._store.list(self._prefix, offset=self._offset, page_size=self._page_size)

    async def next_page(self) -> list[ObjectMeta]:
        try:
            page: list[ObjectMeta] = await anext(self._pages, [])
        except BaseException:
            # Whatever broke it ended it, a timeout too: an ended generator would pass for the end of the list.
            self._pages = self._open()
            raise
        if page:
            self._offset = page[-1].key
        return page
