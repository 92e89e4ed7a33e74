"""Writing again what was made again: directory pages from the keys they listed, and centres from their lists.

The state has both already, whole, from when it was read. A writer puts them into its next batch, so that the damage
is gone for good; a state that lacks anything else is left to `repair`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from penstock.vector.commit import put_centroids
from penstock.vector.directory import encode_page
from penstock.vector.draft import Draft, Operations
from penstock.vector.keys import Family, Shelf, page_key
from penstock.vector.state import CollectionState

__all__ = ["mended"]

_CENTROIDS: Final = Shelf(Family.CENTROIDS)


def mended(state: CollectionState) -> tuple[CollectionState, Operations]:
    """The state without damage, and the operations that make it so; `Corrupt` if more is lost than was made again."""
    if not state.mendable:
        state.require(tuple(Family))
    draft = Draft(replace(state, lost={}, rebuilt=frozenset()))
    if _CENTROIDS in state.lost:
        for low in state.directory(_CENTROIDS).lows.tolist():
            draft.replace(_CENTROIDS, low, None)
        put_centroids(draft, state.centroids, state.centroids.lists)
    whole, operations = draft.finish(state.head, state.centroids, state.deleted, state.hidden)
    directories = dict(whole.directories)
    for shelf in state.lost:
        directory = whole.directory(shelf)
        directories[shelf], pages = directory.paged(np.copy(directory.pages))
        for page in pages:
            key = page_key(state.number, shelf, page.low)
            operations.append((key, encode_page(page.fragments) if len(page.fragments) else None))
    return replace(whole, directories=directories), operations
