"""The writer's side of every store of blocks: changes are accepted in order, flushed together, and kept until durable.

A store brings its format, its planner of flushes, its upkeep and its refusals, and adds what its callers ask for. What
is here is alike for every store: opening at one moment, taking a change in pieces, handles, flushing and closing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from types import TracebackType
from typing import Final, Generic, Protocol, Self, TypeVar

from penstock.blocks.format.store_format import StoreFormat
from penstock.blocks.read.cache import BlockCache
from penstock.blocks.read.head import StoreHeader
from penstock.blocks.read.positions import is_stored, read_positions
from penstock.blocks.read.reader import BlockReader
from penstock.blocks.read.records import StoreRecords
from penstock.blocks.read.snapshot import StoreSnapshot
from penstock.blocks.write.change_handle import ChangeHandle
from penstock.blocks.write.flush import BlockFlushHandler, FlushPlanner
from penstock.blocks.write.keeper import KeptState, UpkeepKeeper, UpkeepPlan
from penstock.blocks.write.refusals import ChangeReceipt, ChangeRefusals, SourcedChange
from penstock.clock import Clock
from penstock.coordinator import Coordinator, CoordinatorConfig, Delta, Mark, WriteHandle
from penstock.errors import AtCapacity, Closed, Corrupt
from penstock.ids import Entropy
from penstock.keyvalue import KeyValue
from penstock.loops import Home
from penstock.observability import Event, Observer

__all__ = ["StoreBounds", "StoreWriter", "WritableChange", "first_moment"]

# After a piece this large, a caller that writes in a loop lets flushes begin.
_YIELD_BYTES: Final = 1 << 20


class WritableChange(SourcedChange, Protocol):
    """A change that a store takes whole, or in pieces."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def receipt(self) -> ChangeReceipt: ...


class StoreBounds(Protocol):
    """The settings that every store of blocks has."""

    @property
    def cache_bytes(self) -> int: ...

    @property
    def upkeep_pause_seconds(self) -> float: ...

    @property
    def coordinator(self) -> CoordinatorConfig: ...


D = TypeVar("D", bound=Delta)
R = TypeVar("R", bound=StoreHeader)
N = TypeVar("N", bound=Hashable)
S = TypeVar("S", bound=KeptState)
C = TypeVar("C", bound=WritableChange)


async def first_moment(
    keyvalue: KeyValue,
    records: StoreRecords[R],
    read_state: Callable[[BlockReader, N], Awaitable[S | None]],
    cache_bytes: int,
    damaged: Event,
    observer: Observer,
) -> tuple[StoreSnapshot[R, N, S], Mapping[str, Corrupt]]:
    """The moment that a writer begins with, and the positions of sources that cannot be read."""
    reader = await keyvalue.snapshot()
    cache = BlockCache(cache_bytes, store=records.format.label, observer=observer)
    blocks = BlockReader(reader, records.format, cache, observer=observer)
    positions = await read_positions(reader, records.format)
    for unknown in positions.unknown.values():
        observer.event(damaged, why=str(unknown))
    record = await records.read_or_rebuilt(reader, lambda error: observer.event(damaged, why=str(error)))
    return StoreSnapshot(blocks, record, positions.known, read_state), positions.unknown


class StoreWriter(Generic[D, R, N, S, C]):
    """One writer of a store of blocks. Leaving `async with` flushes and closes it."""

    def __init__(
        self,
        keyvalue: KeyValue,
        format: StoreFormat,
        snapshot: StoreSnapshot[R, N, S],
        planner: FlushPlanner[D, R, N, S],
        upkeep: UpkeepPlan[D, S],
        refusals: ChangeRefusals[C],
        bounds: StoreBounds,
        *,
        states_max: int,
        clock: Clock,
        entropy: Entropy,
        observer: Observer,
    ) -> None:
        self._keyvalue = keyvalue
        self._label = format.label
        self._refusals = refusals
        self._clock = clock
        self._handler = BlockFlushHandler(keyvalue, format, planner, snapshot, states_max=states_max)
        self._coordinator: Coordinator[D, StoreSnapshot[R, N, S]] = Coordinator(
            self._handler,
            snapshot,
            bounds.coordinator,
            name=format.label,
            clock=clock,
            entropy=entropy,
            observer=observer,
        )
        self._keeper = UpkeepKeeper(self._coordinator, upkeep, bounds.upkeep_pause_seconds, clock=clock)
        self._handler.published, self._handler.landed = lambda: self._coordinator.current.snapshot, self._keeper.notice
        self._closed = False
        self._home = Home()

    # for callers ----------------------------------------------------------------------------------

    async def flush(self, epoch: int | None = None, *, durable: bool = True) -> int:
        """Flush everything up to `epoch`, or all that was accepted; wait until it is durable, or only visible."""
        self._check_open()
        reached = await self._coordinator.flush(epoch, until=Mark.DURABLE if durable else Mark.FLUSHED)
        self._refusals.report()
        return reached

    async def retry(self) -> None:
        """Go on after a failed flush: what is kept is written again."""
        await self._coordinator.retry()

    def position(self, source: str) -> int | None:
        """The last position of a source that is in the store; input up to it is skipped."""
        self._refusals.check_position(source)
        return self._snapshot().positions.get(source)

    async def close(self) -> None:
        """Flush what was accepted and release everything. An error says that accepted writes are not durable."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._keeper.close()
            await self._coordinator.shutdown()
        except BaseException:
            self._coordinator.abort()
            raise
        finally:
            await self._handler.close()
            await self._keyvalue.close()
        self._refusals.report()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # for the store --------------------------------------------------------------------------------

    def _snapshot(self) -> StoreSnapshot[R, N, S]:
        self._check_open()
        return self._coordinator.current.snapshot

    def _check_open(self) -> None:
        self._home.check(f"the {self._label} store", "start processes with spawn, and open a reader in each")
        if self._closed:
            raise Closed(f"the {self._label} store is closed")

    def _check_accepted(self, change: C) -> None:
        """Raise if a change is refused; one that its source has passed already is nobody's concern."""
        is_stored_already = is_stored(self._snapshot().positions, change.source, change.position)
        if not is_stored_already and (why := self._refusals.judge(change)) is not None:
            raise why

    def _pieces(self, change: C, cut: Callable[[C, int], Sequence[C]]) -> Sequence[C]:
        """The change, or pieces of it that each fit the buffer."""
        bounds = self._coordinator.config
        return [change] if change.size_bytes <= bounds.max_buffered_bytes else cut(change, bounds.max_pending_bytes)

    async def _accept(
        self,
        pieces: Sequence[C],
        delta: Callable[[list[C]], D],
        timeout: float | None,
        rejected: Callable[[int], object],
    ) -> WriteHandle:
        """Offer pieces in their order; `rejected` is what a caller gets back when there is no room at a place."""
        for place, piece in enumerate(pieces):
            try:
                accepted = await self._coordinator.write(delta([piece]), timeout)
            except AtCapacity as error:
                error.rejected = rejected(place)
                raise
            if piece.size_bytes >= _YIELD_BYTES:
                await self._clock.sleep(0)
        return accepted

    async def _handle(self, epoch: int, receipt: ChangeReceipt, *, durable: bool) -> WriteHandle:
        """What a caller holds of an accepted change; with `durable`, once it is."""
        handle = ChangeHandle(self._coordinator, epoch, receipt)
        if durable:
            await self._coordinator.flush(epoch)
            receipt.check()
        return handle
