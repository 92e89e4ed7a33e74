"""A whole sweep over one collection, asked for by name: step by step until its head says that it is done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

from penstock.blocks import BlockReader
from penstock.coordinator import Coordinator, Mark
from penstock.vector.format.keys import CollectionName, Family
from penstock.vector.format.state import CollectionState
from penstock.vector.operations import Change, CollectionSpec, Tend, VectorDelta

__all__ = ["compact_collection"]

T = TypeVar("T")


class _Read(Protocol):
    async def __call__(
        self, spec: CollectionSpec, work: Callable[[BlockReader, CollectionState], Awaitable[T]], /
    ) -> T: ...


async def compact_collection(
    coordinator: Coordinator[VectorDelta, Any],
    spec: CollectionSpec,
    read: _Read,
    upkeep_errors: Mapping[CollectionName, Exception],
) -> Exception | None:
    """Sweep a whole collection; returns what kept its upkeep from it. `Corrupt` if it lacks what nothing can replace."""
    await read(spec, _require_whole)
    whole = True
    while whole or await read(spec, _is_sweeping):
        handle = await coordinator.write(VectorDelta([Change(((spec, Tend(whole)),))]))
        await coordinator.flush(handle.epoch, Mark.FLUSHED)
        if (failure := upkeep_errors.get(spec.name)) is not None:
            return failure
        whole = False
    return None


async def _require_whole(_: BlockReader, state: CollectionState) -> None:
    if not state.mendable:
        state.require(tuple(Family))


async def _is_sweeping(_: BlockReader, state: CollectionState) -> bool:
    return state.head.sweep is not None
