"""Patience: what may be repeated is repeated until the deadline, and a conditional write never is."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from penstock.errors import (
    Conflict,
    DeadlineExceeded,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    PermissionDenied,
    StorageFull,
    Unavailable,
)
from penstock.objects import MemoryStore, ObjectMeta, ObjectStore, RetryPolicy
from penstock.objects.retry import RetryingStore
from penstock.observability import names
from penstock.testing import RecordingObserver, SeededEntropy, Simulation, UnreachableStore, simulate

HANG = "hang"


class ScriptedStore(MemoryStore):
    """Meets each call with the next line of a script: an error to raise, before or after it is carried out."""

    def __init__(self) -> None:
        super().__init__("scripted")
        self.script: deque[Any] = deque()
        self.calls: list[str] = []

    async def _play(self, verb: str, call: Callable[[], Awaitable[Any]]) -> Any:
        self.calls.append(verb)
        line = self.script.popleft() if self.script else None
        if line == HANG:
            await asyncio.Event().wait()
        if isinstance(line, Unavailable):
            raise line
        answer = await call()
        if line is not None:
            raise line
        return answer

    async def get(self, key: str) -> Any:
        return await self._play("get", lambda: super(ScriptedStore, self).get(key))

    async def get_durable(self, key: str) -> Any:
        return await self._play("get_durable", lambda: super(ScriptedStore, self).get_durable(key))

    async def head(self, key: str) -> Any:
        return await self._play("head", lambda: super(ScriptedStore, self).head(key))

    async def put(self, key: str, data: Any) -> Any:
        return await self._play("put", lambda: super(ScriptedStore, self).put(key, data))

    async def put_if(self, key: str, data: Any, *, version: str | None) -> Any:
        return await self._play("put_if", lambda: super(ScriptedStore, self).put_if(key, data, version=version))

    async def delete_many(self, keys: Any) -> Any:
        return await self._play("delete_many", lambda: super(ScriptedStore, self).delete_many(keys))

    async def list(
        self, prefix: str = "", *, offset: str = "", page_size: int = 1000
    ) -> AsyncIterator[list[ObjectMeta]]:
        async for page in super().list(prefix, offset=offset, page_size=page_size):
            await self._play("list", self.close)
            yield page


BUSY = Unavailable("busy")
LOST = OutcomeUnknown("lost")
POLICY = RetryPolicy(deadline_seconds=10, pause_seconds_first=0.1, pause_seconds_max=2)

Promise = Callable[[RetryingStore, ScriptedStore, RecordingObserver], Awaitable[None]]


def on_script(promise: Promise, policy: RetryPolicy = POLICY, seed: int = 1) -> float:
    """Run on simulated time, and give back how much of it passed."""

    async def main(simulation: Simulation) -> float:
        store, observer = ScriptedStore(), RecordingObserver()
        doors: dict[str, Any] = {"clock": simulation.clock, "entropy": simulation.entropy, "observer": observer}
        await promise(RetryingStore(store, policy, **doors), store, observer)
        return simulation.clock.monotonic()

    return simulate(main, seed)


@pytest.mark.parametrize("verb", ["get", "head"])
def test_a_read_is_repeated_until_it_succeeds(verb: str) -> None:
    async def promise(store: RetryingStore, inner: ScriptedStore, observer: RecordingObserver) -> None:
        await store.put("object", b"body")
        inner.script.extend([BUSY, BUSY, BUSY])
        await getattr(store, verb)("object")
        assert inner.calls == ["put"] + [verb] * 4
        assert observer.counted(names.OBJECTS_RETRIES, verb=verb) == 3

    on_script(promise)


@pytest.mark.parametrize("fault", [BUSY, LOST])
def test_an_unconditional_write_is_repeated_even_if_it_may_have_landed(fault: Exception) -> None:
    async def promise(store: RetryingStore, inner: ScriptedStore, _: RecordingObserver) -> None:
        inner.script.extend([fault, fault])
        await store.put("object", b"body")
        inner.script.extend([fault])
        await store.delete_many(iter(["object", "missing"]))
        assert inner.calls == ["put"] * 3 + ["delete_many"] * 2
        with pytest.raises(NotFound):
            await store.get("object")

    on_script(promise)


@pytest.mark.parametrize("fault", [BUSY, LOST])
def test_a_conditional_write_is_never_repeated(fault: Exception) -> None:
    """A repeat of one that landed would report a conflict of the writer with itself."""

    async def promise(store: RetryingStore, inner: ScriptedStore, observer: RecordingObserver) -> None:
        inner.script.extend([fault])
        with pytest.raises(type(fault)):
            await store.put_if("object", b"body", version=None)
        assert inner.calls == ["put_if"]
        assert observer.counted(names.OBJECTS_RETRIES) == 0

    on_script(promise)


@pytest.mark.parametrize(
    "fault", [NotFound("x"), Conflict("x"), PermissionDenied("x"), StorageFull("x"), InvalidInput("x")]
)
def test_what_will_not_change_is_raised_at_once(fault: Exception) -> None:
    async def promise(store: RetryingStore, inner: ScriptedStore, _: RecordingObserver) -> None:
        inner.script.extend([fault])
        with pytest.raises(type(fault)):
            await store.put("object", b"body")
        assert inner.calls == ["put"]

    assert on_script(promise) == 0


def test_a_dead_store_is_given_up_at_the_deadline_and_not_before_it_was_tried_often() -> None:
    async def main(simulation: Simulation) -> None:
        observer = RecordingObserver()
        doors: dict[str, Any] = {"clock": simulation.clock, "entropy": simulation.entropy, "observer": observer}
        store = RetryingStore(UnreachableStore(), POLICY, **doors)
        for call in (store.get("object"), store.put("object", b""), store.delete("object"), store.head("object")):
            started = simulation.clock.monotonic()
            with pytest.raises(DeadlineExceeded, match="within 10 s; the last answer: unreachable"):
                await call
            assert 5 < simulation.clock.monotonic() - started <= 10
        assert observer.counted(names.OBJECTS_RETRIES) > 20

    simulate(main, 1)


def test_a_write_that_may_have_landed_is_of_unknown_outcome_at_the_deadline() -> None:
    async def promise(store: RetryingStore, inner: ScriptedStore, _: RecordingObserver) -> None:
        inner.script.extend([LOST, *[BUSY] * 1000])
        with pytest.raises(OutcomeUnknown, match="did not succeed"):
            await store.put("object", b"body")

    on_script(promise)


def test_a_call_that_hangs_ends_at_the_deadline() -> None:
    async def promise(store: RetryingStore, inner: ScriptedStore, _: RecordingObserver) -> None:
        inner.script.extend([HANG])
        with pytest.raises(DeadlineExceeded):
            await store.get("object")
        inner.script.extend([HANG])
        with pytest.raises(OutcomeUnknown):
            await store.put("object", b"body")

    assert on_script(promise) == pytest.approx(20)


def test_what_the_store_said_last_is_reported_even_if_the_last_attempt_was_cut_short() -> None:
    async def promise(store: RetryingStore, inner: ScriptedStore, _: RecordingObserver) -> None:
        inner.script.extend([BUSY, HANG])
        with pytest.raises(DeadlineExceeded, match=f"1 retries within 10 s; the last answer: {BUSY}"):
            await store.get("object")

    on_script(promise)


def test_cancelling_ends_the_waiting() -> None:
    async def main(simulation: Simulation) -> None:
        store = RetryingStore(UnreachableStore(), POLICY, clock=simulation.clock, entropy=simulation.entropy)
        call = asyncio.create_task(store.get("object"))
        await simulation.clock.sleep(1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert simulation.clock.monotonic() == 1

    simulate(main, 1)


def test_a_listing_goes_on_behind_the_last_key_it_gave_out() -> None:
    async def promise(store: RetryingStore, inner: ScriptedStore, observer: RecordingObserver) -> None:
        keys = [f"{number:02}" for number in range(10)]
        for key in keys:
            await store.put(key, b"")
        inner.script.extend([None, BUSY, BUSY, None, BUSY])
        assert [[meta.key for meta in page] async for page in store.list(page_size=3)] == [
            keys[:3],
            keys[3:6],
            keys[6:9],
            keys[9:],
        ]
        assert observer.counted(names.OBJECTS_RETRIES, verb="list") == 3

    on_script(promise)


def test_a_listing_cut_by_its_deadline_is_an_error_and_not_an_end() -> None:
    async def promise(store: RetryingStore, inner: ScriptedStore, _: RecordingObserver) -> None:
        for key in ("a", "b"):
            await store.put(key, b"")
        inner.script.extend([None, HANG])
        pages = store.list(page_size=1)
        assert [meta.key for meta in await anext(pages)] == ["a"]
        with pytest.raises(DeadlineExceeded):
            await anext(pages)

    on_script(promise)


def test_pauses_have_full_jitter_up_to_a_bound_that_doubles() -> None:
    entropy = SeededEntropy(1)
    policy = RetryPolicy(pause_seconds_first=0.1, pause_seconds_max=5)
    for retry, bound in ((0, 0.1), (1, 0.2), (4, 1.6), (6, 5.0), (10_000, 5.0)):
        pauses = [policy.pause_seconds(retry, entropy) for _ in range(500)]
        assert 0 <= min(pauses) < bound * 0.05
        assert bound * 0.95 < max(pauses) <= bound


@pytest.mark.parametrize("setting", ["deadline_seconds", "pause_seconds_first", "pause_seconds_max"])
def test_a_policy_without_time_is_refused(setting: str) -> None:
    with pytest.raises(InvalidInput, match=setting):
        RetryPolicy(**{setting: 0})


def test_every_verb_is_counted_timed_and_weighed() -> None:
    async def promise(store: RetryingStore, inner: ScriptedStore, observer: RecordingObserver) -> None:
        meta = await store.put("object", b"0123456789")
        await store.put_if("object", b"01234", version=meta.version)
        with pytest.raises(Conflict):
            await store.put_if("object", b"01234", version=meta.version)
        await store.get("object")
        await store.get_range("object", 0, 2)
        await store.get_ranges("object", [(0, 1), (2, 4)])
        await store.head("object")
        async for _ in store.list():
            pass
        await store.delete("object")
        for verb in ("put", "put_if", "get", "get_range", "get_ranges", "head", "delete"):
            assert observer.counted(names.OBJECTS_REQUESTS, verb=verb, outcome="ok") == 1
        assert observer.counted(names.OBJECTS_REQUESTS, verb="put_if", outcome="Conflict") == 1
        assert observer.counted(names.OBJECTS_BYTES, direction="written") == 15
        assert observer.counted(names.OBJECTS_BYTES, direction="read") == 5 + 2 + 3

    on_script(promise)


def test_it_is_a_store() -> None:
    store: ObjectStore = RetryingStore(MemoryStore("name"))
    assert store.url == "memory://name"
    asyncio.run(store.close())
