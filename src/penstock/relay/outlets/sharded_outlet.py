"""Segments into several queues: each shard gets the rows of its tenants, exactly once, in one write of its manifest.

```
segment ─▶ its layout (noted before the first attempt) ─▶ rows of shard 0 ─▶ QueueOutlet 0 ┐
                                                        ─▶ rows of shard 3 ─▶ QueueOutlet 3 ┴▶ acknowledge
```
Every shard has a journal of its own, so a crash between two of them leaves one with the segment and the other without,
and the next attempt finds that out shard by shard. Shards are served in the order of their numbers, always: two segments
can then never wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from penstock.buffer import RoutingWatch, ShardLayout
from penstock.disk import Disk, RealDisk, explain
from penstock.loops import Offload, Threads
from penstock.observability import SILENT, Observer, names
from penstock.quiver import SegmentMeta
from penstock.relay.outlets.layout_journal import LayoutJournal, LayoutState
from penstock.relay.outlets.outlet import Delivered, SegmentRows, SendAnswer, Undeliverable
from penstock.relay.outlets.queue_outlet import QueueOutlet
from penstock.relay.outlets.shard_rows import rows_by_shard

__all__ = ["ShardedOutlet"]

T = TypeVar("T")


class ShardedOutlet:
    """`open_shard` makes the outlet of a shard when it is first needed; `journal` is the file of the layouts."""

    def __init__(
        self,
        watch: RoutingWatch,
        open_shard: Callable[[int], QueueOutlet],
        journal: str,
        *,
        disk: Disk | None = None,
        offload: Offload | None = None,
        observer: Observer = SILENT,
    ) -> None:
        self._watch, self._open_shard, self._observer = watch, open_shard, observer
        self._journal = LayoutJournal(disk or RealDisk(), journal)
        self._threads = None if offload else Threads(1, "penstock-layouts", "the relay")
        self._offload: Offload = offload or self._threads  # type: ignore[assignment]
        self._outlets: dict[int, QueueOutlet] = {}
        self._state: LayoutState | None = None
        # Of the segment that was tried last: shards that have it for certain.
        self._segment, self._done = -1, set[int]()

    async def send(self, delivery: SegmentRows) -> SendAnswer:
        layout = await self._layout(delivery.segment_seq)
        if self._segment != delivery.segment_seq:
            self._segment, self._done = delivery.segment_seq, set()
        if layout.shards == 1:
            return await self._outlet(0).send(delivery)
        is_new, refused = False, ""
        for shard, tables in rows_by_shard(await delivery.read(), layout).items():
            if shard in self._done:
                continue
            answer = await self._outlet(shard).send(_ShardRows(delivery.meta, tables))
            if isinstance(answer, Delivered):
                is_new = is_new or answer.is_new
            elif isinstance(answer, Undeliverable):
                refused = answer.reason
            else:
                return answer
            self._done.add(shard)
        return Undeliverable(refused) if refused else Delivered(is_new)

    async def settled(self, delivery: SegmentRows) -> None:
        self._segment, self._done = -1, set()
        for outlet in self._outlets.values():
            await outlet.settled(delivery)

    async def close(self) -> None:
        for outlet in self._outlets.values():
            await outlet.close()
        if self._threads is not None:
            self._threads.close()

    async def _layout(self, segment_seq: int) -> ShardLayout:
        """The layout of a segment: the one it was begun with, or the one in force."""
        current = (await self._watch.current()).layout
        state = self._state or await self._opened(current)
        if segment_seq < state.newest.since or current == state.newest.layout:
            return state.layout_of(segment_seq)
        held = state.layout_of(segment_seq)
        for shard in range(held.shards):
            if await self._outlet(shard).has_begun(segment_seq):
                return held
        await self._write(state.changed(segment_seq, current))
        self._observer.event(names.RELAY_LAYOUT, segment=segment_seq, shards=current.shards, by=current.by.value)
        return current

    async def _opened(self, current: ShardLayout) -> LayoutState:
        state = await self._on_disk("the relay's layouts cannot be read", self._journal.read) or LayoutState()
        if self._journal.was_lost:
            # What was being sent went most likely by the layout in force.
            self._observer.event(names.RELAY_JOURNAL_LOST, relay="layouts")
            return await self._write(state.changed(0, current))
        self._state = state
        return state

    async def _write(self, state: LayoutState) -> LayoutState:
        await self._on_disk("the relay's layouts cannot be written", self._journal.write, state)
        self._state = state
        return state

    async def _on_disk(self, what: str, work: Callable[..., T], *args: Any) -> T:
        try:
            return await self._offload(work, *args)
        except OSError as error:
            raise explain(what, error) from error

    def _outlet(self, shard: int) -> QueueOutlet:
        if shard not in self._outlets:
            self._outlets[shard] = self._open_shard(shard)
        return self._outlets[shard]


@dataclass(frozen=True)
class _ShardRows:
    """The rows of one shard in a segment."""

    meta: SegmentMeta
    tables: dict[str, list[pa.Table]]

    @property
    def segment_seq(self) -> int:
        return self.meta.segment_seq

    async def read(self) -> dict[str, list[pa.Table]]:
        return self.tables
