"""Writing again what was made again: directory pages from the keys they listed, and centres from their lists.

The state has both already, whole, from when it was read. A writer puts them into its next batch, so that the damage
is gone for good; a state that lacks anything else is left to `repair`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from penstock.blocks import Operations, Shelf, page_operations
from penstock.vector.format.keys import Family
from penstock.vector.format.state import CollectionState
from penstock.vector.format.store_format import FORMAT
from penstock.vector.write.commit import put_centroids
from penstock.vector.write.draft import CollectionDraft

__all__ = ["mended"]

_CENTROIDS: Final = Shelf(Family.CENTROIDS)


def mended(state: CollectionState) -> tuple[CollectionState, Operations]:
    """The state without damage, and the operations that make it so; `Corrupt` if more is lost than was made again."""
    if not state.mendable:
        state.require(tuple(Family))
    draft = CollectionDraft(replace(state, lost={}, rebuilt=frozenset()))
    if _CENTROIDS in state.lost:
        for low in state.directory(_CENTROIDS).lows.tolist():
            draft.replace(_CENTROIDS, low, None)
        put_centroids(draft, state.centroids, state.centroids.lists)
    whole, operations = draft.state_after(state.head, state.centroids, state.deleted, state.hidden)
    directories = dict(whole.directories)
    for shelf in state.lost:
        directory = whole.directory(shelf)
        directories[shelf], pages = directory.paged(np.copy(directory.pages))
        operations += page_operations(FORMAT, state.prefix, shelf, pages)
    return replace(whole, directories=directories), operations
