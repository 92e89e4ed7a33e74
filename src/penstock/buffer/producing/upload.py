"""Batch objects on their way into the store: encoded, named by a fresh ULID, uploaded with patience.

An upload may be repeated at will, since nobody reads the object before the manifest names it. What an
upload that was given up leaves behind is garbage, and the collector's.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from penstock.buffer.config import ProducerConfig
from penstock.buffer.format.batch import Compression, RecordBlock
from penstock.buffer.location import batch_location, bucket_prefix
from penstock.clock import Clock
from penstock.errors import OutcomeUnknown, PenstockError, Unavailable
from penstock.ids import Entropy, UlidFactory, ulid_time_ms
from penstock.objects import Body, ObjectStore
from penstock.observability import Observer, names

__all__ = ["BatchPlacement", "Uploader"]

# Below this, compressing takes less time than handing it to a thread.
_THREAD_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class BatchPlacement:
    """Where a batch object lies in its bucket, when it got its name by either clock, and the fence known by then.

    `stored_ms` is the store's own stamp, once somebody has asked for it.
    """

    location: str
    named_ms: int
    named_at: float
    fence: int | None
    stored_ms: int | None = None


class Uploader:
    """Encodes and uploads, several batches at once, within the bounds of the configuration."""

    def __init__(
        self, store: ObjectStore, config: ProducerConfig, *, clock: Clock, entropy: Entropy, observer: Observer
    ) -> None:
        self._store = store
        self._bucket_prefix = bucket_prefix(store.url)
        self._config = config
        self._clock = clock
        self._entropy = entropy
        self._observer = observer
        self._ulids = UlidFactory(clock, entropy)
        self._encoders = asyncio.Semaphore(config.encode_concurrency)
        self._uploads = asyncio.Semaphore(config.upload_concurrency)
        # The fence that the manifest last showed; None before it was read.
        self.fence: int | None = None

    async def encode(self, block: RecordBlock) -> Body:
        """The batch object's bytes; the block is spent."""
        if self._config.compression is Compression.NONE or len(block) < _THREAD_BYTES:
            return block.seal(self._config.compression)
        async with self._encoders:
            return await asyncio.to_thread(block.seal, self._config.compression)

    async def upload(self, body: Body) -> BatchPlacement:
        """Put it under a new name. Raises what the last attempt met once all are used up."""
        async with self._uploads:
            name = self._ulids.next()
            key = batch_location(self._config.data_path_prefix, name)
            placement = BatchPlacement(
                self._bucket_prefix + key, ulid_time_ms(name), self._clock.monotonic(), self.fence
            )
            await self._put(key, body)
            self._observer.count(names.BUFFER_UPLOAD_BYTES, len(body))
            return placement

    def too_old(self, placement: BatchPlacement) -> bool:
        """Whether a collector may soon take it for garbage. Either clock may have been the wrong one to trust."""
        by_wall = (self._clock.now_ms() - placement.named_ms) / 1000
        age = max(by_wall, self._clock.monotonic() - placement.named_at)
        return age >= self._config.enqueue_age_seconds_max

    def vouched(self, placement: BatchPlacement, fence: int, written_ms: int | None) -> bool:
        """Whether no collector can have deleted it by a manifest of this fence, written at `written_ms`, or before.

        A consumer's collector renews the fence before it deletes, so an object named under this very
        fence is there. Otherwise the store's stamps tell: a collector leaves an object alone until
        the manifest was written a whole grace after it. No clock of this machine has a say.
        """
        if placement.fence == fence:
            return True
        if placement.stored_ms is None or written_ms is None:
            return False
        return written_ms - placement.stored_ms < 1000 * self._config.enqueue_age_seconds_max

    async def stamped(self, placement: BatchPlacement) -> BatchPlacement | None:
        """The same with the store's stamp; None when it is gone, or the store does not say."""
        try:
            found = await self._store.head(placement.location.removeprefix(self._bucket_prefix))
        except PenstockError:
            return None
        return replace(placement, stored_ms=found.modified_ms)

    async def _put(self, key: str, body: Body) -> None:
        attempts = self._config.upload_attempts
        for attempt in range(1, attempts + 1):
            try:
                await self._store.put(key, body)
                return
            except OutcomeUnknown as error:
                # Of the object; but no manifest names it, so it is certain that the batch is not in the queue.
                if attempt == attempts:
                    raise Unavailable("batch was not uploaded", str(error), "produce it again") from error
            except Unavailable:
                if attempt == attempts:
                    raise
            self._observer.count(names.BUFFER_UPLOAD_RETRIES)
            await self._clock.sleep(self._pause(attempt))

    def _pause(self, attempt: int) -> float:
        window = min(self._config.backoff_seconds_max, self._config.backoff_seconds_min * 2.0 ** (attempt - 1))
        return self._entropy.uniform(0.0, window)
