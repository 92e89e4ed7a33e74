"""Which upkeep a collection needs next, for the keeper that does it in the pauses between writes.

A writer that never pauses is not kept waiting: its flushes do what can wait no longer (`upkeep.PATIENCE`).
"""

from __future__ import annotations

import msgspec

from penstock.vector.config import VectorConfig
from penstock.vector.format.state import CollectionState
from penstock.vector.operations import Change, CollectionSpec, Tend, VectorDelta
from penstock.vector.upkeep.steps import is_due

__all__ = ["CollectionUpkeep"]


class CollectionUpkeep:
    """One step after the other, as the settings want them."""

    def __init__(self, config: VectorConfig) -> None:
        self._config = config

    def next_step(self, state: CollectionState) -> VectorDelta | None:
        """The write that does the next step; None if none is due."""
        if not is_due(state, self._config):
            return None
        spec = CollectionSpec(state.name, state.dimensions, state.metric, state.analysis)
        return VectorDelta([Change(((spec, Tend()),))])

    def shape(self, state: CollectionState) -> object:
        """What a step changes if it leads anywhere; commits, blocks and the numbers of lists change in any case."""
        head = msgspec.structs.replace(state.head, commit=0, next_serial=0, next_list=0)
        return head, sorted(state.list_rows.tolist())
