"""The queue for callers that have no event loop: scripts, notebooks, plain threads.

Each door opens its own store and runs it on a loop in a thread of its own, so calls simply block until
they are done. One door may be used by several threads; it promises what the async class behind it
promises, and nothing more. A process that was forked from the one that opened a door is refused there.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Generic, TypeVar

from penstock.buffer.config import ConsumerConfig, ProducerConfig
from penstock.buffer.consuming.consumer import Consumer
from penstock.buffer.consuming.fetch import ConsumedBatch
from penstock.buffer.consuming.lag import Lag
from penstock.buffer.format.manifest import Descriptor
from penstock.buffer.producing.handle import InputHandle
from penstock.buffer.producing.producer import Producer
from penstock.errors import PenstockError
from penstock.loops import LoopThread
from penstock.objects import Body, ObjectStore, StoreSpec
from penstock.observability import SILENT, Observer

__all__ = ["SyncConsumer", "SyncProducer", "SyncWriteHandle"]

Role = TypeVar("Role", Producer, Consumer)
Self = TypeVar("Self", bound="_Door[Any]")


class _Door(Generic[Role]):
    """A producer or consumer on a loop of its own."""

    def __init__(
        self, store: str | StoreSpec, observer: Observer, make: Callable[[ObjectStore], Coroutine[Any, Any, Role]]
    ) -> None:
        spec = StoreSpec(store) if isinstance(store, str) else store
        self._thread = LoopThread("penstock-buffer")
        try:
            self._store: ObjectStore = self._thread.run(spec.open(probe=True, observer=observer))
            try:
                self._role: Role = self._thread.run(make(self._store))
            except BaseException:
                self._thread.run(self._store.close())
                raise
        except BaseException:
            self._thread.close()
            raise

    def close(self) -> None:
        """Close the role, its store and its thread; raises what closing the role raises. Idempotent."""
        if self._thread.closed:
            return
        self._thread.check_home()
        try:
            self._thread.run(self._role.close())
        finally:
            try:
                self._thread.run(self._store.close())
            finally:
                self._thread.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SyncWriteHandle:
    """One accepted input."""

    def __init__(self, thread: LoopThread, handle: InputHandle) -> None:
        self._thread = thread
        self._handle = handle

    def durable(self) -> int:
        """Block until it is durable; the batch's sequence in the queue."""
        return self._thread.run(self._handle.durable())


class SyncProducer(_Door[Producer]):
    """`Producer`, blocking. `on_failure` is called on the door's own thread, and must not block it."""

    def __init__(
        self,
        store: str | StoreSpec,
        config: ProducerConfig | None = None,
        *,
        observer: Observer = SILENT,
        on_failure: Callable[[PenstockError, int], None] | None = None,
    ) -> None:
        async def make(opened: ObjectStore) -> Producer:
            producer = Producer(opened, config, observer=observer, on_failure=on_failure)
            await producer.start()
            return producer

        super().__init__(store, observer, make)

    def produce(self, records: Iterable[Body], metadata: Body = b"") -> SyncWriteHandle:
        return SyncWriteHandle(self._thread, self._thread.run(self._role.produce(records, metadata)))

    def flush(self) -> None:
        self._thread.run(self._role.flush())


class SyncConsumer(_Door[Consumer]):
    """`Consumer`, blocking. It has taken the fence once it is made."""

    def __init__(
        self,
        store: str | StoreSpec,
        config: ConsumerConfig | None = None,
        last_acked: int | None = None,
        *,
        observer: Observer = SILENT,
    ) -> None:
        async def make(opened: ObjectStore) -> Consumer:
            consumer = Consumer(opened, config, last_acked, observer=observer)
            await consumer.start()
            return consumer

        super().__init__(store, observer, make)

    def next_batch(self) -> ConsumedBatch | None:
        return self._thread.run(self._role.next_batch())

    def next_descriptors(self, max: int) -> list[Descriptor]:
        return self._thread.run(self._role.next_descriptors(max))

    def fetch(self, descriptor: Descriptor) -> ConsumedBatch:
        return self._thread.run(self._role.fetch(descriptor))

    def ack(self, sequence: int) -> None:
        self._thread.run(self._role.ack(sequence))

    def ack_through(self, sequence: int) -> None:
        self._thread.run(self._role.ack_through(sequence))

    def flush(self) -> None:
        self._thread.run(self._role.flush())

    def lag(self) -> Lag:
        return self._thread.run(self._role.lag())
