"""One shard: its head in a register, a cache of it, and commits that fetch what they need before they decide.

Nothing is asked of the store while the cache is young enough; then a conditional get tells whether the head
has changed. A commit starts from the cached head: one conditional write, and a read only after a conflict or
when the cache is empty. A committer sees its own commits at once.
"""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from penstock.catalog.change.lookup import Blocks, SegmentsNeeded
from penstock.catalog.config import CatalogConfig
from penstock.catalog.format.block import FileBlock
from penstock.catalog.format.head import CatalogHead, HeadState
from penstock.catalog.format.head_json import HeadFormat
from penstock.catalog.format.layout import CatalogLayout
from penstock.catalog.format.legacy import decode_pair
from penstock.catalog.format.segment import SegmentEntry
from penstock.catalog.format.shard_map import ROOT
from penstock.catalog.segments import SegmentCache
from penstock.clock import Clock
from penstock.errors import Corrupt, InvalidInput, NotFound, Unsupported
from penstock.ids import Entropy, ulid
from penstock.objects import ObjectStore, Register, RegisterPolicy
from penstock.observability import Observer, names

__all__ = ["Shard"]


class Shard:
    """The head of one shard, read and changed."""

    def __init__(
        self,
        shard: str,
        store: ObjectStore,
        layout: CatalogLayout,
        config: CatalogConfig,
        segments: SegmentCache,
        *,
        clock: Clock,
        entropy: Entropy,
        observer: Observer,
    ) -> None:
        self.id = shard
        self._store = store
        self._layout = layout
        self._config = config
        self._segments = segments
        self._clock = clock
        self._observer = observer
        self._format = HeadFormat(config.format, shard=shard, bytes_max=config.head_bytes_max)
        deadline = config.commit_deadline_seconds
        self._register = Register(
            store,
            layout.head(shard),
            self._format,
            name="catalog",
            policy=RegisterPolicy(deadline_seconds=deadline, attempt_seconds=min(10.0, deadline / 2)),
            clock=clock,
            entropy=entropy,
            observer=observer,
        )
        self._uuid = ulid(clock.now_ms(), entropy)
        self._cached: CatalogHead | None = None
        self._current_at = 0.0
        # Reads begun, and the number of the one that last filled the cache.
        self._reads = 0
        self._cached_by = 0
        self._reading = asyncio.Lock()
        # What the legacy pair holds, while there is no catalog.json.
        self._legacy: CatalogHead | None = None
        self._has_warned = False

    @property
    def conflict_rate(self) -> float:
        return self._register.conflict_rate

    @property
    def head_bytes(self) -> int:
        """Size of the head when it was last read or written."""
        return self._format.bytes_last

    async def head(self) -> CatalogHead:
        """The head as it was at most `staleness_seconds` ago."""
        oldest = self._clock.monotonic() - self._config.staleness_seconds
        if self._config.staleness_seconds == 0 or self._cached is None or self._current_at < oldest:
            return await self.fresh()
        return self._cached

    async def fresh(self) -> CatalogHead:
        """The head as it is now. Callers that ask together share one read that began after all of them."""
        asked = self._reads
        async with self._reading:
            if self._cached is None or self._cached_by <= asked:
                await self._read()
            assert self._cached is not None
            return self._cached

    async def commit(self, change: Callable[[CatalogHead, Blocks], CatalogHead], kind: str) -> CatalogHead:
        """Apply a pure change in one conditional write; the head that includes it.

        Segments that the change asks for are fetched, and it is tried again. It keeps its turn among the writers: one
        that began anew each time would be overtaken, and find the segments rewritten, for as long as others write.
        """
        began = self._clock.monotonic()
        if self._cached is None or self._cached.is_absent:
            # The first write takes the legacy pair over: as it is now, and not as it was when it was last planned.
            await self.fresh()
        held: dict[str, FileBlock] = {}
        while True:
            try:
                head = await self._register.update(partial(self._changed, change, held), asked=began)
            except SegmentsNeeded as needed:
                # Never the same ones again, so this ends when nobody rewrites them, or at the deadline.
                held.update(await self.load(needed.entries))
                self._observer.count(names.CATALOG_RETRIES)
            else:
                self._remember(self._base(head), began)
                self._observer.observe(names.CATALOG_COMMIT_SECONDS, self._clock.monotonic() - began, change=kind)
                self._tell_growth(head)
                return self._base(head)

    async def load(self, entries: Iterable[SegmentEntry]) -> dict[str, FileBlock]:
        """Segments by key; the first that cannot be read is raised."""
        found, failed = await self._segments.load(entries)
        for error in failed.values():
            raise error
        return found

    async def close(self) -> None:
        await self._register.close()

    def __str__(self) -> str:
        return str(self._register)

    async def _read(self) -> None:
        self._reads += 1
        number, began = self._reads, self._clock.monotonic()
        head = await self._register.read()
        if head.is_absent and self.id == ROOT:
            pair = [await self._maybe(key) for key in (self._layout.legacy_chunks, self._layout.legacy_index)]
            if pair[0] is None:
                # A migration may have written the catalog meanwhile, and be deleting the pair.
                head = await self._register.read()
            self._legacy = self._from_pair(*pair) if head.is_absent else None
            if head.is_absent and self._legacy is None and (segment := await self._segment_left()) is not None:
                # It may have been made, and have grown, while we looked.
                head = await self._register.read()
                if head.is_absent:
                    why = f"its segments are there, such as {segment!r}, and {self._layout.head(self.id)!r} is not"
                    remedy = "restore it; to begin anew, move the metadata folder away"
                    raise Corrupt("the head of the catalog is missing", why, remedy)
        self._remember(self._base(head), began)
        self._cached_by = number

    def _remember(self, head: CatalogHead, current_at: float) -> None:
        """Keep the newest. Two answers may arrive in the wrong order; of another catalog, the last one counts."""
        known = self._cached
        if known is None or head.is_absent or known.is_absent or head.seq >= known.seq or head.uuid != known.uuid:
            self._cached = head
        self._current_at = max(self._current_at, current_at)

    def _base(self, head: CatalogHead) -> CatalogHead:
        return self._legacy if head.is_absent and self._legacy is not None else head

    def _changed(
        self, change: Callable[[CatalogHead, Blocks], CatalogHead], held: dict[str, FileBlock], value: CatalogHead
    ) -> CatalogHead:
        base = self._base(value)
        after = change(base, ChainMap(held, self._segments.blocks))  # type: ignore[arg-type]
        if after is base:
            return value
        if value.version > self._config.format and not value.is_absent:
            why = f"it is of version {value.version}, and this process is configured for {self._config.format}"
            raise Unsupported(
                f"{self} was not changed", why, "set format = 3, or run penstock catalog downgrade --to 2"
            )
        return replace(after, version=self._config.format, shard=self.id, uuid=after.uuid or self._uuid, is_draft=True)

    async def _segment_left(self) -> str | None:
        """The key of a segment, if there is one: a catalog that has segments had a head."""
        for folder in ("seg", "archive"):
            async for page in self._store.list(f"{self._layout.metadata}/{folder}/"):
                if page:
                    return page[0].key
        return None

    def _from_pair(self, chunks: bytes | None, index: bytes | None) -> CatalogHead | None:
        """What the legacy pair holds, if both or one of them are there."""
        if chunks is None and index is None:
            return None
        if self._config.legacy == "refuse":
            raise InvalidInput(
                f"{self} does not exist, but the legacy pair does",
                "reading the legacy pair is turned off",
                "run penstock catalog migrate",
            )
        head, _ = decode_pair(chunks, index, self._config.format)
        return replace(head, is_absent=True)

    async def _maybe(self, key: str) -> bytes | None:
        """Only a plain absence means that an object is not there; every other error is raised."""
        try:
            return (await self._store.get(key)).data
        except NotFound:
            return None

    def _tell_growth(self, head: CatalogHead) -> None:
        size = self._format.bytes_last
        self._observer.gauge(names.CATALOG_HEAD_BYTES, size, shard=self.id)
        self._observer.gauge(names.CATALOG_INLINE_FILES, len(head.chunks), shard=self.id)
        is_large = size > self._config.head_bytes_warn
        if is_large and not self._has_warned:
            self._observer.event(names.CATALOG_GROWING, shard=self.id, head_bytes=size, advice=self.advice(head))
        self._has_warned = is_large

    def advice(self, head: CatalogHead) -> list[str]:
        """What to do about a head that grows or a shard that is contended; nothing when all is well."""
        told = []
        if self._format.bytes_last > self._config.head_bytes_warn:
            told.append("move to format 3" if head.version == 2 else "archive closed days, or split the shard")
        if self._register.conflict_rate > self._config.conflict_rate_warn:
            told.append("split the shard: most writes lose to other writers")
        if head.state is HeadState.CLOSED:
            told.append("finish the split of this shard: it takes no writes")
        return told
