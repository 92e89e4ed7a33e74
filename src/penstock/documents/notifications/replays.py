"""Remembers deliveries that were believed, so that a recorded one is not believed again while its time still holds.

A delivery is known by the digest of its signature: two that are signed alike are the same. One process keeps them in
memory; processes that share a store keep them there, one small object each, created only if absent.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import AtCapacity, Conflict, OutcomeUnknown
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.objects import ObjectStore, StoreSpec

__all__ = ["REPLAYS_PREFIX", "MemoryReplays", "Replays", "StoredReplays", "digest"]

REPLAYS_PREFIX: Final = "notifications/seen/"
# At a thousand deliveries a second and five minutes of tolerance on either side this is not reached.
_REMEMBERED_MAX: Final = 1_000_000
# Processes that share a store have clocks of their own: what is over for one may still be believed by another.
_CLOCKS_APART_MS_MAX: Final = 600_000


class Replays(Protocol):
    def claim(self, signature: str, until_ms: int) -> bool:
        """Whether it is seen for the first time; remembered until then."""
        ...

    def release(self, signature: str, until_ms: int) -> None:
        """Forget it: what was to be done with the delivery failed, and its sender may try again."""
        ...


class MemoryReplays:
    """Those of one process. When it holds too many to remember another, it says so instead of forgetting one."""

    def __init__(self, *, remembered_max: int = _REMEMBERED_MAX, clock: Clock = SYSTEM_CLOCK) -> None:
        self._until: dict[str, int] = {}
        self._remembered_max = remembered_max
        self._clock = clock

    def claim(self, signature: str, until_ms: int) -> bool:
        now, name = self._clock.now_ms(), digest(signature)
        if len(self._until) >= self._remembered_max:
            self._until = {known: until for known, until in self._until.items() if until >= now}
        if self._until.get(name, -1) >= now:
            return False
        if len(self._until) >= self._remembered_max:
            raise AtCapacity(
                f"{self._remembered_max} deliveries are remembered", "no more can be remembered", "send it again later"
            )
        self._until[name] = until_ms
        return True

    def release(self, signature: str, until_ms: int) -> None:
        self._until.pop(digest(signature), None)


class StoredReplays:
    """Those of all processes that receive for one store. Names hold the time until which they count, in order."""

    def __init__(self, spec: StoreSpec, *, clock: Clock = SYSTEM_CLOCK, entropy: Entropy = SYSTEM_ENTROPY) -> None:
        self._spec = spec
        self._clock = clock
        self._entropy = entropy

    def claim(self, signature: str, until_ms: int) -> bool:
        return self._run(lambda store: self._claim(store, signature, until_ms))

    def release(self, signature: str, until_ms: int) -> None:
        self._run(lambda store: _removed(store, _key(signature, until_ms)))

    async def _claim(self, store: ObjectStore, signature: str, until_ms: int) -> bool:
        await self._forget(store)
        key = _key(signature, until_ms)
        proof = self._entropy.token(16)
        try:
            await store.put_if(key, proof, version=None)
        except Conflict:
            return False
        except OutcomeUnknown:
            # Whoever wrote what is there now has the claim; if nothing is, this raises and nobody has.
            if (await store.get(key)).data != proof:
                return False
        return True

    async def _forget(self, store: ObjectStore) -> None:
        """Remove those whose time is over; nobody would believe their deliveries any more."""
        now = f"{REPLAYS_PREFIX}{max(0, self._clock.now_ms() - _CLOCKS_APART_MS_MAX):016d}"
        async for page in store.list(REPLAYS_PREFIX):
            over = [meta.key for meta in page if meta.key < now]
            await store.delete_many(over)
            if len(over) < len(page):
                return

    def _run(self, work: Callable[[ObjectStore], Awaitable[bool]]) -> bool:
        async def run() -> bool:
            store = await self._spec.open()
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(run())


def _key(signature: str, until_ms: int) -> str:
    return f"{REPLAYS_PREFIX}{until_ms:016d}-{digest(signature)}"


async def _removed(store: ObjectStore, key: str) -> bool:
    await store.delete(key)
    return True


def digest(signature: str) -> str:
    return hashlib.sha256(signature.encode("utf-8", "surrogatepass")).hexdigest()
