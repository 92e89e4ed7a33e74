"""The store: bundles in, segments out, and nothing acknowledged is lost in between."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Final

import pyarrow as pa

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.disk import Disk, RealDisk, explain
from penstock.errors import Closed, Corrupt, InvalidInput, PenstockError
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.loops import Home, Offload, Threads
from penstock.observability import SILENT, Observer
from penstock.quiver.acks.ack_state import AckState
from penstock.quiver.bundles.bundle import Ack, Bundle
from penstock.quiver.config import Durability, QuiverConfig, SubscriberConfig
from penstock.quiver.delivery.delivery import Delivery
from penstock.quiver.doors import Doors
from penstock.quiver.layout import Layout
from penstock.quiver.opening import Findings, OpenedInstance, full_path, open_instance
from penstock.quiver.scan import ScanTime, choose_slot, gather, is_wanted, open_tables
from penstock.quiver.segment.format import SegmentMeta
from penstock.quiver.setting_values import checked_list, shown, whole
from penstock.quiver.store_parts import StoreParts

__all__ = ["Quiver"]

_THREADS: Final = 4
_BUNDLES: Final[set[type]] = {Bundle}


class Quiver:
    """One instance of a store, with one writer. Make it with `open`."""

    def __init__(self, config: QuiverConfig, doors: Doors, opened: OpenedInstance | None, layout: Layout) -> None:
        self.config = config
        self.findings = opened.findings if opened else Findings()
        self._doors = doors
        self._home = Home()
        self._lock: AbstractContextManager[None] | None = opened.lock if opened else None
        self._threads: list[Threads] = []
        self._parts = parts = StoreParts(config, doors, opened, layout, self.findings)
        self._ack_log = parts.ack_log
        self._wal = parts.wal
        self._finaliser = parts.finaliser
        self._subscribers = parts.subscribers
        self._upkeep: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._closed = False

    # Life -----------------------------------------------------------------------------------------

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        config: QuiverConfig | None = None,
        *,
        instance: int = 0,
        disk: Disk | None = None,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        offload: Offload | None = None,
        observer: Observer = SILENT,
    ) -> Quiver:
        """Open an instance of the store in this directory, made if there is none.

        `Conflict` while another process has it; everything that is damaged is set aside and told in `findings`.
        """
        config = config if config is not None else QuiverConfig()
        if not isinstance(config, QuiverConfig):
            raise InvalidInput(f"the settings {config!r} are not for a store", "a QuiverConfig is needed")
        whole("instance", instance, least=0)
        threads = Threads(_THREADS, "penstock-quiver", "the quiver")
        lane = Threads(1, "penstock-quiver-log", "the quiver")
        doors = Doors(
            disk or RealDisk(),
            clock,
            entropy,
            offload or threads,
            observer,
            str(instance),
            None if offload else lane,
        )
        layout = Layout(full_path(path), instance)
        try:
            opened = None
            if config.durability is not Durability.OFF:
                opened = await doors.offload(_open, doors, layout, config)
            store = cls(config, doors, opened, layout)
        except BaseException:
            threads.close()
            lane.close()
            raise
        store._threads = [threads, lane]
        try:
            await store._start(opened)
        except BaseException as error:
            store._release()
            if isinstance(error, OSError):
                raise explain(f"the store {path} cannot be opened", error) from error
            raise
        return store

    async def close(self) -> None:
        """Write what is in memory, and give the store back. Raises why that was not possible; idempotent.

        A caller that is cancelled stops nothing: the store is given back all the same, and another call waits for it.
        """
        if self._closing is None:
            self._home.check("the store", "let the process close it that opened it")
            self._closed = True
            self._closing = asyncio.create_task(self._close())
        elif self._closing.done():
            return
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            if self._upkeep is not None:
                await self._parts.upkeep.stop(self._upkeep)
            self._subscribers.close()
            await self._wal.close()
            await self._finaliser.stop()
            # What was processed last goes now, not with the next start; if it cannot, then.
            with suppress(PenstockError):
                await self._parts.upkeep.sweep(settled_only=True)
            await self._parts.sweeper.redate()
        finally:
            try:
                await self._ack_log.close()
            finally:
                self._release()

    async def __aenter__(self) -> Quiver:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Ingest ---------------------------------------------------------------------------------------

    async def ingest(self, bundle: Bundle, timeout: float | None = None) -> Ack:
        """Store one bundle; waits for room at the cap, up to `timeout` seconds (`DeadlineExceeded`)."""
        return (await self._ingest([bundle], bundle, wait=True, timeout=timeout))[0]

    async def ingest_many(self, bundles: Iterable[Bundle], timeout: float | None = None) -> list[Ack]:
        """Store bundles together, as one record of the log: all are durable, or none."""
        # The caller's own may change while they are on their way.
        if not isinstance(bundles, Iterable):
            raise _no_bundles([bundles])
        taken = tuple(bundles)
        return await self._ingest(taken, bundles, wait=True, timeout=timeout) if taken else []

    async def try_ingest(self, bundle: Bundle) -> Ack:
        """Store one bundle, or refuse it (`AtCapacity`) where `ingest` would wait for room."""
        return (await self._ingest([bundle], bundle, wait=False))[0]

    async def flush(self) -> None:
        """Return once every bundle that was acknowledged is in a segment."""
        self._check_open()
        await self._wal.drain()
        await self._finaliser.flush("flush")

    # Subscribers ----------------------------------------------------------------------------------

    async def register(self, subscriber: str, config: SubscriberConfig | None = None) -> None:
        self._check_open()
        await self._subscribers.register(subscriber, config)

    async def deactivate(self, subscriber: str) -> None:
        self._check_open()
        await self._subscribers.deactivate(subscriber)

    async def unregister(self, subscriber: str) -> None:
        self._check_open()
        await self._subscribers.unregister(subscriber)

    async def next(self, subscriber: str, timeout: float | None = None) -> Delivery | None:
        self._check_open()
        return await self._subscribers.next(subscriber, timeout)

    async def replay(self, subscriber: str, segment_seqs: Sequence[int] | None = None) -> list[int]:
        """Deliver segments once more: these, or all dead letters of the subscriber. Returns the ones still there."""
        self._check_open()
        if segment_seqs is None:
            chosen = self._subscribers.dead_letters(subscriber)
        else:
            chosen = checked_list("segment_seqs", segment_seqs, int, "numbers of segments")
        return await self._subscribers.replay(subscriber, chosen)

    # Reading --------------------------------------------------------------------------------------

    async def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        columns: Sequence[str] | None = None,
        *,
        time: ScanTime = "event",
        slot: str | None = None,
    ) -> pa.Table:
        """Rows of one slot that wait here, in segments and in memory, pruned by their ranges of time.

        Event time counts nanoseconds, ingestion time milliseconds. Segments that overlap `[start, end)` come whole,
        but for event time where `segment.event_time_column` says which rows are meant.
        """
        self._check_open()
        if slot is not None and not isinstance(slot, str):
            raise InvalidInput(f"slot is {shown(slot)}", "it must be the name of one, or None for the only one")
        found: dict[str, list[pa.Table]] = {}
        for meta in [meta for meta in self.segments if is_wanted(meta, start, end, time)]:
            for name, tables in (await self._subscribers.read(meta)).items():
                found.setdefault(name, []).extend(tables)
        for buffer in self._finaliser.buffers(self._state.finalised_through):
            if is_wanted(buffer, start, end, time):
                for name, tables in open_tables(buffer).items():
                    found.setdefault(name, []).extend(tables)
        chosen = choose_slot(found, slot)
        column = self.config.segment.event_time_column if time == "event" else ""
        return gather(found.get(chosen or "", []), columns, event_time=(column, start, end) if column else None)

    async def repair(self) -> Findings:
        """Read everything once: what cannot be read is set aside, and what is sound is written anew where it must be."""
        await self.flush()
        for meta in self.segments:
            with suppress(Corrupt):
                await self._subscribers.read(meta)
        # Two, because the file before the newest is kept: neither then has a bad region.
        await self._ack_log.checkpoint()
        await self._ack_log.checkpoint()
        return self.findings

    # Upkeep ---------------------------------------------------------------------------------------

    async def sweep(self) -> None:
        """Remove what retention says, now."""
        self._check_open()
        await self._parts.upkeep.sweep()

    @property
    def state(self) -> AckState:
        """Marks, gaps and what waits for whom. To be looked at, not changed."""
        return self._state

    @property
    def segments(self) -> list[SegmentMeta]:
        """Metadata of all segments, oldest first."""
        return [self._parts.segments[number] for number in sorted(self._parts.segments)]

    @property
    def open_bytes(self) -> int:
        """Bytes of bundles in memory."""
        return self._finaliser.bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes on the disk."""
        return self._parts.upkeep.stored_bytes

    # What serves it -------------------------------------------------------------------------------

    @property
    def _state(self) -> AckState:
        return self._ack_log.state

    async def _ingest(
        self, bundles: Sequence[Bundle], rejected: object, *, wait: bool, timeout: float | None = None
    ) -> list[Ack]:
        self._check_open()
        # What only looks like one, as a record batch does, would fail for all that share its group.
        if set(map(type, bundles)) != _BUNDLES and not all(isinstance(bundle, Bundle) for bundle in bundles):
            raise _no_bundles(bundles)
        size = sum([bundle.nbytes for bundle in bundles])
        await self._parts.admission.admit(size, rejected, wait=wait, timeout=timeout)
        self._check_open()
        return await self._wal.append(bundles, size)

    async def _start(self, opened: OpenedInstance | None) -> None:
        await self._parts.start(opened)
        self._upkeep = asyncio.create_task(self._parts.upkeep.run())

    def _release(self) -> None:
        # First the threads: whoever opens the store next must not find one of them still at work.
        for threads in self._threads:
            threads.close()
        if self._parts.usage is not None:
            self._parts.usage.close()
        if self._lock is not None:
            self._lock.__exit__(None, None, None)
            self._lock = None

    def _check_open(self) -> None:
        # A group that is under way here is under way in the parent alone: a forked child would wait for it for ever.
        self._home.check("the store", "open it again in this process")
        if self._closed:
            raise Closed("the store is closed", "close() was called", "open it again")


def _no_bundles(given: Sequence[object]) -> InvalidInput:
    kinds = ", ".join(sorted({type(one).__name__ for one in given}))
    return InvalidInput(f"{kinds} cannot be stored", "a store accepts bundles", "make a Bundle of it")


def _open(doors: Doors, layout: Layout, config: QuiverConfig) -> OpenedInstance:
    return open_instance(doors.disk, layout, config, clock=doors.clock, entropy=doors.entropy)
