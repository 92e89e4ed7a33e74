"""What a consumer knows of its queue: the manifest as it was last read, and how little must be read to go on.

The manifest is read whole only when it has changed and this view has run out of entries. In between the
fence alone is compared: the version of an object that has not changed says enough, and of one that has,
the footer's few bytes do. So handing out and acknowledging cost the same however much is queued, and a
fence still shows at the next call: at once to an acknowledgement, and to a read within hundredths of a second.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Final

from penstock.buffer.config import ConsumerConfig
from penstock.buffer.format.manifest import FOOTER_BYTES, Descriptor, Manifest, fence_of
from penstock.buffer.queue import Dequeue, manifest_register
from penstock.clock import Clock
from penstock.errors import Corrupt, Fenced, PenstockError
from penstock.ids import Entropy
from penstock.objects import ObjectMeta, ObjectStore
from penstock.observability import Observer, names

__all__ = ["ManifestView"]

# A fence that was compared this long ago need not be compared again to hand out what is in memory: a request
# takes longer to come back. Acknowledging compares it always.
_RECENT_SECONDS: Final = 0.01

# Below this, one conditional read of the whole manifest is cheaper than two requests that avoid it.
_GLANCE_BYTES_MIN: Final = 64 * 1024


class ManifestView:
    """The manifest of one consumer, through the fence that it holds."""

    def __init__(
        self, store: ObjectStore, config: ConsumerConfig, *, clock: Clock, entropy: Entropy, observer: Observer
    ) -> None:
        self._store = store
        self._path = config.manifest_path
        self._answer_seconds_max = config.manifest_deadline_seconds
        self._clock = clock
        self._observer = observer
        self._register = manifest_register(
            store,
            config.manifest_path,
            role="consumer",
            deadline_seconds=config.manifest_deadline_seconds,
            clock=clock,
            entropy=entropy,
            observer=observer,
        )
        self._seen: Manifest | None = None
        # The last sequence that this consumer took off, or tried to.
        self._dequeued = -1
        # The version at which the footer was last compared by itself.
        self._glanced: str | None = None
        self._glanced_at = -inf
        self._fenced = False

    @property
    def fence(self) -> int | None:
        """The fence held; None before `acquire_fence`."""
        return self._register.fence

    @property
    def seen(self) -> Manifest:
        """As it was when it was last read or written here."""
        return self._seen or Manifest.empty()

    @property
    def conflict_rate(self) -> float:
        return self._register.conflict_rate

    async def acquire_fence(self) -> int:
        return await self._register.acquire_fence()

    async def renew_fence(self) -> None:
        """Change the manifest by another fence of ours: what was sent to replace an older version cannot land now."""
        try:
            self._take(await self._register.renew_fence())
        except Fenced:
            self._tell_fenced()
            raise

    async def read(self) -> Manifest:
        """The manifest as it is now; of one that has not changed, nothing is moved."""
        before = self._seen
        try:
            manifest = await self._register.read()
        except Fenced:
            self._tell_fenced()
            raise
        self._check_continues(before, manifest)
        return self._take(manifest)

    async def ahead(self, after: int | None, limit: int) -> list[Descriptor]:
        """Up to `limit` entries behind this sequence, from what was read before as long as that suffices."""
        if self.seen.count_after(after) >= limit and (self._is_recent() or await self._glance()):
            return self.seen.after(after, limit)
        return (await self.read()).after(after, limit)

    async def check_fence(self) -> None:
        """`Fenced` once another consumer has started."""
        if not await self._glance():
            await self.read()

    async def dequeue(self, through: int) -> None:
        """Take everything through this sequence off the queue."""
        change = Dequeue(through)
        self._dequeued = max(self._dequeued, through)
        try:
            with self._observer.span(names.BUFFER_DEQUEUE, through=through):
                manifest = await self._register.update(change, landed=change.landed)
        except Fenced:
            self._tell_fenced()
            raise
        if manifest.fence != self.fence:
            # It is gone, and perhaps a successor took it off: not for this one to build on.
            self._tell_fenced()
            why = f"this one holds fence {self.fence}, and the manifest is at fence {manifest.fence}"
            raise Fenced("the consumer was taken over", why, "stop: the newer consumer continues from here")
        self._take(manifest)

    async def close(self) -> None:
        await self._register.close()

    def _take(self, manifest: Manifest) -> Manifest:
        """Answers overtake each other, and what was seen must not grow younger: both numbers only go up."""
        last = self._seen
        if last is None or last.fence != manifest.fence or _age(manifest) >= _age(last):
            self._seen = manifest
        return manifest

    def _check_continues(self, before: Manifest | None, now: Manifest) -> None:
        """Numbers only go up, and while the fence is ours the head moves by our own dequeues alone.

        No checksum covers the footer: of an empty queue this is all that tells a damaged number from a true one.
        """
        if before is None or not before.fence == now.fence == self.fence:
            return
        head_max = max(before.first_sequence, self._dequeued + 1)
        if now.next_sequence < before.next_sequence or not before.first_sequence <= now.first_sequence <= head_max:
            why = (
                f"it held {before.first_sequence} to {before.next_sequence} (next), "
                f"holds {now.first_sequence} to {now.next_sequence}, and this consumer took off through {self._dequeued}"
            )
            raise Corrupt("the queue manifest contradicts its earlier state", why, "restore it from a good copy")

    async def _glance(self) -> bool:
        """Whether the fence is certainly still ours, by the version or the footer alone.

        False says nothing: reading the whole manifest decides, and meets the errors that this leaves aside.
        """
        if len(self.seen.body) < _GLANCE_BYTES_MIN:
            return False
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._answer_seconds_max):
                meta = await self._store.head(self._path)
                if meta.version != self._glanced and await self._fence_at(meta) != self.fence:
                    return False
        except (PenstockError, TimeoutError):
            return False
        self._glanced, self._glanced_at = meta.version, began
        return True

    async def _fence_at(self, meta: ObjectMeta) -> int:
        start = meta.size - FOOTER_BYTES
        return fence_of(await self._store.get_range(self._path, start, meta.size, version=meta.version))

    def _is_recent(self) -> bool:
        return self._clock.monotonic() - self._glanced_at < _RECENT_SECONDS

    def _tell_fenced(self) -> None:
        if not self._fenced:
            self._fenced = True
            self._observer.event(names.BUFFER_FENCED, fence=self.fence)


def _age(manifest: Manifest) -> tuple[int, int]:
    return manifest.next_sequence, manifest.first_sequence
