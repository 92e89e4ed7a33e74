"""Whether a store really enforces conditional writes, found out by trying.

Several S3 look-alikes take `If-Match` and `If-None-Match` and ignore them. Every promise above this
port rests on those two conditions, so such a store is refused by name before anything is written to it
that matters.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Conflict, OutcomeUnknown, PenstockError, Unavailable, Unsupported
from penstock.ids import SYSTEM_ENTROPY, Entropy, ulid
from penstock.objects.port import ObjectMeta, ObjectStore
from penstock.objects.retry import RetryPolicy

__all__ = ["probe_conditional_writes"]

# A probe sends conditional writes, which nothing else repeats; each attempt takes a fresh key.
ATTEMPTS_MAX: Final = 4
_PATIENCE: Final = RetryPolicy(pause_seconds_first=0.2, pause_seconds_max=2.0)


async def probe_conditional_writes(
    store: ObjectStore, *, clock: Clock = SYSTEM_CLOCK, entropy: Entropy = SYSTEM_ENTROPY
) -> None:
    """Raise `Unsupported` unless a create happens once only and an update only at the version it names."""
    for attempt in range(ATTEMPTS_MAX):
        key = ulid(clock.now_ms(), entropy)
        try:
            await _probe(store, key)
        except (OutcomeUnknown, Unavailable) as error:
            if attempt == ATTEMPTS_MAX - 1:
                raise Unavailable(f"{store.url} could not be probed", str(error), "check that it is up") from error
            await clock.sleep(_PATIENCE.pause_seconds(attempt, entropy))
        else:
            return
        finally:
            # The probe's verdict matters more than a few bytes that stay behind.
            with suppress(PenstockError):
                await store.delete(key)


async def _probe(store: ObjectStore, key: str) -> None:
    created = await _must_succeed(store, store.put_if(key, b"created", version=None), "creates a new object")
    await _must_conflict(store, store.put_if(key, b"created twice", version=None), "If-None-Match", "creates")
    updated = await _must_succeed(
        store, store.put_if(key, b"updated", version=created.version), "updates an object at its version"
    )
    await _must_conflict(store, store.put_if(key, b"updated late", version=created.version), "If-Match", "updates")
    found = await store.get(key)
    if found.data != b"updated" or found.meta.version != updated.version:
        raise _refusal(store, "it does not read back what it acknowledged")


async def _must_succeed(store: ObjectStore, write: Awaitable[ObjectMeta], what: str) -> ObjectMeta:
    try:
        return await write
    except Conflict as error:
        raise _refusal(store, f"it reports a conflict where nobody else {what}") from error


async def _must_conflict(store: ObjectStore, write: Awaitable[ObjectMeta], header: str, what: str) -> None:
    try:
        await write
    except Conflict:
        return
    raise _refusal(store, f"it ignores {header}: conditional {what} overwrite")


def _refusal(store: ObjectStore, why: str) -> Unsupported:
    return Unsupported(
        f"{store.url} cannot be used",
        f"conditional writes are not enforced there: {why}",
        "use a store that enforces them, or open it with read_only=True",
    )
