"""Collects batch objects that nobody refers to: those consumed, and those whose enqueue never happened.

An object is garbage when all of these hold: its name is a ULID and `.batch`, right under the data
prefix; no manifest entry refers to it; its ULID is older than the oldest entry's, where there are
entries; and it is at least `grace_seconds` old, by its name and by the store's own stamp. Producers
never enqueue an object older than half of that. Deleting can stop at any point, since the next
collection finds the rest. A queue without a manifest object is left alone: its path may be mistyped. A
folder that is not marked for this manifest is left alone too, with an error (`ownership.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from penstock.buffer.config import CollectorConfig
from penstock.buffer.location import batch_time_ms, bucket_prefix
from penstock.buffer.manifest import Manifest
from penstock.buffer.ownership import Ownership
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import NotFound
from penstock.objects import ObjectMeta, ObjectStore
from penstock.observability import SILENT, Observer, names

__all__ = ["Collection", "Collector", "garbage"]


@dataclass(frozen=True, slots=True)
class Collection:
    """What one collection came to. Of a dry run, what it would have come to."""

    deleted: int
    deleted_bytes: int
    dry_run: bool


class Collector:
    """Deletes garbage, once or again and again. Any number may run: they never get in each other's way."""

    def __init__(
        self,
        store: ObjectStore,
        config: CollectorConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
    ) -> None:
        self._store = store
        self._config = config or CollectorConfig()
        self._ownership = Ownership(store, self._config.data_path_prefix, self._config.manifest_path)
        self._clock = clock
        self._observer = observer

    async def collect(self, *, dry_run: bool = False) -> Collection:
        """Delete what is garbage now, page by page."""
        began = self._clock.monotonic()
        deleted = deleted_bytes = 0
        async for page in self.find():
            if not dry_run:
                await self._store.delete_many(meta.key for meta in page)
                self._observer.count(names.BUFFER_COLLECTED, len(page))
            deleted += len(page)
            deleted_bytes += sum(meta.size for meta in page)
        self._observer.observe(names.BUFFER_COLLECT_SECONDS, self._clock.monotonic() - began)
        return Collection(deleted, deleted_bytes, dry_run)

    async def find(self) -> AsyncIterator[list[ObjectMeta]]:
        """Pages of garbage. Each page is judged by a manifest that was read after the page was listed."""
        prefix, grace_ms = self._config.data_path_prefix, round(self._config.grace_seconds * 1000)
        async for page in self._store.list(f"{prefix}/", page_size=self._config.delete_batch_keys):
            now_ms = self._clock.now_ms()
            if aged := [meta for meta in page if _aged(meta, prefix, now_ms - grace_ms)]:
                manifest = await self._manifest()
                if manifest is None:
                    return
                await self._ownership.check()
                if found := garbage(aged, manifest, prefix, bucket_prefix(self._store.url)):
                    yield found
            if _past(page, prefix, now_ms - grace_ms):
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

    async def _manifest(self) -> Manifest | None:
        try:
            return Manifest((await self._store.get(self._config.manifest_path)).data)
        except NotFound:
            return None


def garbage(aged: Iterable[ObjectMeta], manifest: Manifest, prefix: str, above: str = "") -> list[ObjectMeta]:
    """Those of the objects past their grace that no entry needs, now or soon. `above`: what the bucket has above them."""
    locations = {entry.location for entry in manifest}
    times = [batch_time_ms(location, f"{above}{prefix}") for location in locations]
    # An entry whose name tells no time could be older than anything: nothing is deleted while it is queued.
    oldest_ms = min((time if time is not None else 0 for time in times), default=None)
    return [
        meta
        for meta in aged
        if f"{above}{meta.key}" not in locations
        and (time := batch_time_ms(meta.key, prefix)) is not None
        and (oldest_ms is None or time < oldest_ms)
    ]


def _aged(meta: ObjectMeta, prefix: str, newest_ms: int) -> bool:
    """Past the grace by its name, and by the store's stamp: a producer's clock may be far behind."""
    time = batch_time_ms(meta.key, prefix)
    return time is not None and max(time, meta.modified_ms) <= newest_ms


def _past(page: list[ObjectMeta], prefix: str, newest_ms: int) -> bool:
    """Names sort by their time, so behind one that is too young there are only younger ones."""
    times = [time for meta in page if (time := batch_time_ms(meta.key, prefix)) is not None]
    return bool(times) and times[-1] > newest_ms
