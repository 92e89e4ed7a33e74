"""Collects batch objects that nobody refers to: those consumed, and those whose enqueue never happened.

An object is garbage when all of these hold: its name is a ULID and `.batch`, right under the data
prefix; no manifest entry refers to it; its ULID is older than the oldest entry's, where there are
entries; and it was at least `grace_seconds` old, by its name and by the store's own stamp, when the
manifest was last written. The last one makes sure that it can no longer be enqueued: a write that began
before the manifest changed cannot land any more, however late it arrives, and one that began since is not
sent by a producer that finds its batch too old (`upload.py`). While nobody writes the manifest, such
objects wait. The collector of a consumer does not: it renews the fence, which changes the manifest, and
which producers see whatever their clocks say.

Deleting can stop at any point, since the next collection finds the rest. A queue without a manifest
object is left alone: its path may be mistyped. A folder that is not marked for this manifest is left
alone too, with an error (`ownership.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from penstock.buffer.config import CollectorConfig
from penstock.buffer.location import batch_time_ms
from penstock.buffer.oldest_entry import OldestEntry
from penstock.buffer.ownership import Ownership
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import StorageFull
from penstock.objects import ObjectMeta, ObjectStore
from penstock.observability import SILENT, Observer, names

__all__ = ["Collector", "GarbageReport", "garbage"]


@dataclass(frozen=True, slots=True)
class GarbageReport:
    """The result of one collection. Of a dry run, what it would have come to."""

    deleted: int
    deleted_bytes: int
    dry_run: bool
    # Old enough, and kept until the manifest is written once more.
    waiting: int = 0


class Collector:
    """Deletes garbage, once or again and again. Any number may run: they never get in each other's way."""

    def __init__(
        self,
        store: ObjectStore,
        config: CollectorConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
        renew: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`renew` changes the manifest, for one who may: the holder of the fence."""
        self._store = store
        self._config = config or CollectorConfig()
        self._grace_ms = round(self._config.grace_seconds * 1000)
        self._renew = renew
        self._ownership = Ownership(store, self._config.data_path_prefix, self._config.manifest_path)
        self._clock = clock
        self._observer = observer

    async def collect(self, *, dry_run: bool = False) -> GarbageReport:
        """Delete what is garbage now, page by page."""
        began = self._clock.monotonic()
        deleted = deleted_bytes = waiting = 0
        async for page in self._pages(renew=None if dry_run else self._renew):
            if not dry_run and page.garbage:
                await self._store.delete_many(meta.key for meta in page.garbage)
                self._observer.count(names.BUFFER_COLLECTED, len(page.garbage))
            deleted += len(page.garbage)
            deleted_bytes += sum(meta.size for meta in page.garbage)
            waiting += page.waiting
        self._observer.observe(names.BUFFER_COLLECT_SECONDS, self._clock.monotonic() - began)
        return GarbageReport(deleted, deleted_bytes, dry_run, waiting)

    async def find(self) -> AsyncIterator[list[ObjectMeta]]:
        """Pages of garbage, as `collect` would delete them without writing anything else."""
        async for page in self._pages(renew=None):
            if page.garbage:
                yield page.garbage

    async def _pages(self, *, renew: Callable[[], Awaitable[None]] | None) -> AsyncIterator[_Page]:
        """Each page is judged by a manifest that was read after the page was listed.

        Only what was past its grace when this began is looked at: all of it was named before the fence is renewed.
        """
        prefix = self._config.data_path_prefix
        newest_ms = self._clock.now_ms() - self._grace_ms
        oldest = OldestEntry(self._store, self._config.manifest_path, prefix)
        async for page in self._store.list(f"{prefix}/", page_size=self._config.delete_batch_keys):
            if aged := [meta for meta in page if _aged(meta, prefix, newest_ms)]:
                judged = await self._judge(aged, oldest)
                if judged is not None and judged.unneeded and renew is not None:
                    # A full disk is emptied all the same, as far as earlier writes of the manifest allow.
                    with suppress(StorageFull):
                        await renew()
                    renew = None
                    judged = await self._judge(aged, oldest)
                if judged is None:
                    return
                yield judged
            if _past(page, prefix, newest_ms, oldest.named_ms):
                return

    async def run(self) -> None:
        """Collect at every interval until cancelled. A collection that fails is left to the next one."""
        while True:
            await self._clock.sleep(self._config.interval_seconds)
            try:
                await self.collect()
            except Exception as error:  # noqa: BLE001  nobody waits for this task: what ended it would never be seen
                self._observer.count(names.BUFFER_COLLECT_FAILURES)
                self._observer.event(names.BUFFER_COLLECT_FAILED, error=f"{type(error).__name__}: {error}")

    async def _judge(self, aged: list[ObjectMeta], oldest: OldestEntry) -> _Page | None:
        """Which of these objects the manifest does not need, as it is now; None when there is no manifest."""
        if not await oldest.look():
            return None
        await self._ownership.check()
        prefix, newest_ms = self._config.data_path_prefix, oldest.written_ms - self._grace_ms
        unneeded = garbage(aged, oldest.named_ms, prefix)
        settled = [meta for meta in unneeded if _aged(meta, prefix, newest_ms)]
        return _Page(settled, len(unneeded) - len(settled))


@dataclass(frozen=True, slots=True)
class _Page:
    """What one page of the listing comes to."""

    garbage: list[ObjectMeta]
    waiting: int

    @property
    def unneeded(self) -> bool:
        return bool(self.garbage or self.waiting)


def garbage(aged: Iterable[ObjectMeta], oldest_ms: int | None, prefix: str) -> list[ObjectMeta]:
    """Those of the objects past their grace that no entry needs, now or soon: all that are older than every entry's."""
    return [
        meta
        for meta in aged
        if (time := batch_time_ms(meta.key, prefix)) is not None and (oldest_ms is None or time < oldest_ms)
    ]


def _aged(meta: ObjectMeta, prefix: str, newest_ms: int) -> bool:
    """Past the grace by its name, and by the store's stamp: a producer's clock may be far behind."""
    time = batch_time_ms(meta.key, prefix)
    return time is not None and max(time, meta.modified_ms) <= newest_ms


def _past(page: list[ObjectMeta], prefix: str, newest_ms: int, oldest_ms: int | None) -> bool:
    """Names sort by their time, so behind one that is too young, or as young as an entry's, there are only younger ones."""
    times = [time for meta in page if (time := batch_time_ms(meta.key, prefix)) is not None]
    return bool(times) and (times[-1] > newest_ms or (oldest_ms is not None and times[-1] >= oldest_ms))
