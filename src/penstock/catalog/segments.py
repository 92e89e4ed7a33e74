"""Segment objects: fetched once, checked against the head that names them, and kept decoded within a bound.

Segments are immutable, so what is in memory is right for ever. Several callers that want one segment share
one fetch. A segment that is gone or damaged is named, and nothing else suffers.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.catalog.format.block import FileBlock
from penstock.catalog.format.layout import CatalogLayout
from penstock.catalog.format.segment import SegmentEntry, decode_segment
from penstock.clock import Clock
from penstock.errors import Corrupt, NotFound, OutcomeUnknown, PenstockError, Unavailable
from penstock.ids import Entropy
from penstock.objects import ObjectStore, RetryPolicy

__all__ = ["SegmentCache"]

_PATIENCE: Final = RetryPolicy(pause_seconds_first=0.1, pause_seconds_max=2.0)
_TRIES: Final = 6


class SegmentCache:
    """The decoded segments of one catalog, the least recently used forgotten first."""

    def __init__(
        self,
        store: ObjectStore,
        layout: CatalogLayout,
        *,
        bytes_max: int,
        concurrency: int,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._store = store
        self._layout = layout
        self._bytes_max = bytes_max
        self._bytes = 0
        self._gate = asyncio.Semaphore(concurrency)
        self._clock = clock
        self._entropy = entropy
        self._blocks: OrderedDict[str, FileBlock] = OrderedDict()
        self._fetches: dict[str, asyncio.Task[FileBlock]] = {}

    @property
    def blocks(self) -> Mapping[str, FileBlock]:
        """What is in memory now. It changes only while somebody awaits."""
        return self._blocks

    async def load(self, entries: Iterable[SegmentEntry]) -> tuple[dict[str, FileBlock], dict[str, PenstockError]]:
        """The segments by key, and the errors of those that cannot be read."""
        found: dict[str, FileBlock] = {}
        wanted: dict[str, SegmentEntry] = {}
        for entry in entries:
            block = self._blocks.get(entry.key)
            if block is None:
                wanted[entry.key] = entry
            else:
                self._blocks.move_to_end(entry.key)
                found[entry.key] = block
        failed: dict[str, PenstockError] = {}
        if wanted:
            answers = await asyncio.gather(*(self._shared(one) for one in wanted.values()), return_exceptions=True)
            for key, answer in zip(wanted, answers, strict=True):
                if isinstance(answer, PenstockError):
                    failed[key] = answer
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    found[key] = answer
        return found, failed

    async def upload(self, entry: SegmentEntry, body: bytes, block: FileBlock) -> None:
        """Write a segment's object, and keep its rows. Its key is that of its bytes: writing it again is harmless."""
        key = self._layout.key(entry.key)
        for attempt in range(_TRIES):
            try:
                await self._store.put(key, body)
            except (OutcomeUnknown, Unavailable):
                if attempt == _TRIES - 1:
                    raise
                await self._clock.sleep(_PATIENCE.pause_seconds(attempt, self._entropy))
            else:
                self._keep(entry.key, block)
                return

    async def _shared(self, entry: SegmentEntry) -> FileBlock:
        task = self._fetches.get(entry.key)
        if task is None:
            task = asyncio.create_task(self._fetch(entry), name=f"fetch of segment {entry.key}")
            self._fetches[entry.key] = task
            task.add_done_callback(lambda done: self._fetched(entry.key, done))
        # Whoever leaves does not take the fetch from the others.
        return await asyncio.shield(task)

    def _fetched(self, key: str, task: asyncio.Task[FileBlock]) -> None:
        self._fetches.pop(key, None)
        if not task.cancelled() and task.exception() is None:
            self._keep(key, task.result())

    async def _fetch(self, entry: SegmentEntry) -> FileBlock:
        key = self._layout.key(entry.key)
        for attempt in range(_TRIES):
            try:
                async with self._gate:
                    found = await self._store.get(key)
            except NotFound as error:
                why = f"{self._store.url} has no object {key!r}, and the head names it"
                raise Corrupt(f"segment {entry.key!r} is missing", why, "restore it, or plan without it") from error
            except Unavailable:
                if attempt == _TRIES - 1:
                    raise
                await self._clock.sleep(_PATIENCE.pause_seconds(attempt, self._entropy))
            else:
                return decode_segment(found.data, entry)
        raise AssertionError("unreachable")

    def _keep(self, key: str, block: FileBlock) -> None:
        if key not in self._blocks:
            self._blocks[key] = block
            self._bytes += block.table.nbytes
        while self._bytes > self._bytes_max and len(self._blocks) > 1:
            _, oldest = self._blocks.popitem(last=False)
            self._bytes -= oldest.table.nbytes
