"""The store for callers that have no event loop: scripts, notebooks, plain threads.

It runs on a loop in a thread of its own; calls block until they are done, from any number of threads, which share the
syncs of the log as tasks of one loop do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa

from penstock.loops import LoopThread
from penstock.quiver.bundles.bundle import Ack, Bundle
from penstock.quiver.config import QuiverConfig, SubscriberConfig
from penstock.quiver.delivery.delivery import Delivery
from penstock.quiver.opening import Findings
from penstock.quiver.scan import ScanTime
from penstock.quiver.segment.format import SegmentMeta
from penstock.quiver.store import Quiver

__all__ = ["SyncDelivery", "SyncQuiver"]

T = TypeVar("T")


class SyncDelivery:
    """`Delivery`, blocking. As a context it acknowledges at the end of the block, and refuses when the block raises."""

    def __init__(self, thread: LoopThread, delivery: Delivery) -> None:
        self._thread = thread
        self._delivery = delivery

    @property
    def segment_seq(self) -> int:
        return self._delivery.segment_seq

    @property
    def attempt(self) -> int:
        return self._delivery.attempt

    def read(self) -> dict[str, list[pa.Table]]:
        return self._thread.run(self._delivery.read())

    def table(self, slot: str | None = None) -> pa.Table:
        return self._thread.run(self._delivery.table(slot))

    def ack(self) -> None:
        self._thread.run(self._delivery.ack())

    def nack(self, reason: str = "", *, permanent: bool = False) -> None:
        self._thread.run(self._delivery.nack(reason, permanent=permanent))

    def defer(self, delay: float) -> None:
        self._thread.run(self._delivery.defer(delay))

    def __enter__(self) -> SyncDelivery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(self._delivery.__aexit__(kind, error, trace))


class SyncQuiver:
    """`Quiver`, blocking. It is open once it is made."""

    def __init__(self, path: str | os.PathLike[str], config: QuiverConfig | None = None, **doors: Any) -> None:
        """`doors` are those of `Quiver.open`: the instance, the observer, the clock."""
        self._thread = LoopThread("penstock-quiver")
        try:
            self._store = self._thread.run(Quiver.open(path, config, **doors))
        except BaseException:
            self._thread.close()
            raise

    @property
    def findings(self) -> Findings:
        return self._store.findings

    def ingest(self, bundle: Bundle, timeout: float | None = None) -> Ack:
        return self._thread.run(self._store.ingest(bundle, timeout))

    def ingest_many(self, bundles: Sequence[Bundle], timeout: float | None = None) -> list[Ack]:
        return self._thread.run(self._store.ingest_many(bundles, timeout))

    def try_ingest(self, bundle: Bundle) -> Ack:
        return self._thread.run(self._store.try_ingest(bundle))

    def flush(self) -> None:
        self._thread.run(self._store.flush())

    def register(self, subscriber: str, config: SubscriberConfig | None = None) -> None:
        self._thread.run(self._store.register(subscriber, config))

    def deactivate(self, subscriber: str) -> None:
        self._thread.run(self._store.deactivate(subscriber))

    def unregister(self, subscriber: str) -> None:
        self._thread.run(self._store.unregister(subscriber))

    def next(self, subscriber: str, timeout: float | None = None) -> SyncDelivery | None:
        delivery = self._thread.run(self._store.next(subscriber, timeout))
        return None if delivery is None else SyncDelivery(self._thread, delivery)

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        columns: Sequence[str] | None = None,
        *,
        time: ScanTime = "event",
        slot: str | None = None,
    ) -> pa.Table:
        return self._thread.run(self._store.scan(start, end, columns, time=time, slot=slot))

    def replay(self, subscriber: str, segment_seqs: Sequence[int] | None = None) -> list[int]:
        return self._thread.run(self._store.replay(subscriber, segment_seqs))

    def repair(self) -> Findings:
        return self._thread.run(self._store.repair())

    def sweep(self) -> None:
        self._thread.run(self._store.sweep())

    @property
    def segments(self) -> list[SegmentMeta]:
        """Metadata of all segments, oldest first."""

        async def listed() -> list[SegmentMeta]:
            return self._store.segments

        return self._thread.run(listed())

    def run(self, work: Callable[[Quiver], Coroutine[Any, Any, T]]) -> T:
        """Run what needs the store itself, a relay above all, on the store's own loop; blocks until it is done."""
        return self._thread.run(work(self._store))

    def close(self) -> None:
        """Close the store and its thread; raises what closing the store raises. Idempotent."""
        if self._thread.closed:
            return
        self._thread.check_home()
        try:
            self._thread.run(self._store.close())
        finally:
            self._thread.close()

    def __enter__(self) -> SyncQuiver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
