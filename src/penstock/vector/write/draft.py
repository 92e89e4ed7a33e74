"""A commit to one collection in the making, on top of a state that lacks nothing."""

from __future__ import annotations

from dataclasses import replace

from penstock.blocks import BlockDraft, Operations
from penstock.vector.format.clusters import Centroids
from penstock.vector.format.idset import IdSet
from penstock.vector.format.keys import Family
from penstock.vector.format.state import CollectionState, Head
from penstock.vector.format.store_format import FORMAT

__all__ = ["CollectionDraft"]


class CollectionDraft(BlockDraft[CollectionState]):
    """Changes to one collection."""

    def __init__(self, base: CollectionState) -> None:
        base.require(tuple(Family))
        super().__init__(FORMAT, base)

    def state_after(
        self, head: Head, centroids: Centroids, deleted: IdSet, hidden: IdSet
    ) -> tuple[CollectionState, Operations]:
        """The state after the commit, and the operations that make it so."""
        done = self.finish(head)
        state = replace(
            self.base,
            head=done.head,
            directories=done.directories,
            centroids=centroids,
            deleted=deleted,
            hidden=hidden,
        )
        return state, done.operations
