"""How the stores of an index are opened by those who ask it or tell it something, and who watches.

A process that has a configuration brings doors of its own; `PLAIN_DOORS` open every store as its URL says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from penstock.indexing.registry.entries import VECTOR_PATH
from penstock.objects import StoreSpec
from penstock.observability import SILENT, Observer
from penstock.vector import VectorReader

if TYPE_CHECKING:
    from penstock.buffer import SyncProducer

__all__ = ["PLAIN_DOORS", "PlainDoors", "StoreDoors"]


class StoreDoors(Protocol):
    """Options, settings and the observer of every store that is opened."""

    @property
    def observer(self) -> Observer: ...

    @property
    def manifest_path(self) -> str:
        """Where the queue of a store is."""
        ...

    def spec(self, url: str) -> StoreSpec: ...

    def producer(self, url: str) -> SyncProducer: ...

    async def reader(self, url: str, path: str = VECTOR_PATH) -> VectorReader:
        """The vectors of a store, beside whoever writes them."""
        ...


@dataclass(frozen=True, slots=True)
class PlainDoors:
    """The `StoreDoors` of a process that configures nothing."""

    observer: Observer = SILENT

    @property
    def manifest_path(self) -> str:
        # A search has no use for the queue, and does not load it.
        from penstock.buffer import ConsumerConfig

        return ConsumerConfig().manifest_path

    def spec(self, url: str) -> StoreSpec:
        return StoreSpec(url)

    def producer(self, url: str) -> SyncProducer:
        from penstock.buffer import SyncProducer

        return SyncProducer(url, observer=self.observer)

    async def reader(self, url: str, path: str = VECTOR_PATH) -> VectorReader:
        return await VectorReader.open(url, path, observer=self.observer)


PLAIN_DOORS: Final = PlainDoors()
