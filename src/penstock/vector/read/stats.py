"""Figures of a collection that an operator asks for."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.errors import PenstockError
from penstock.vector.format.keys import CollectionName, Family
from penstock.vector.format.state import CollectionState

__all__ = ["CollectionStats", "stats_of", "unreadable_stats"]


@dataclass(frozen=True, slots=True)
class CollectionStats:
    """How large a collection is, and in what shape."""

    name: CollectionName
    dimensions: int
    metric: str
    rows: int
    hidden_rows: int
    dead_rows: int
    texts: int
    lists: int
    list_rows_median: int
    list_rows_max: int
    blocks: int
    stored_bytes: int
    resident_bytes: int
    sweeping: bool
    attributes: dict[str, str] = field(default_factory=dict)
    bytes_by_kind: dict[str, int] = field(default_factory=dict)
    # Rows, hidden ones included, that only their words find: at least so many, and no others once dead rows are swept.
    rows_without_vector: int = 0
    # Blocks that cannot be read, as far as is known without reading all of them; or why nothing can.
    damage: tuple[str, ...] = ()


def stats_of(state: CollectionState) -> CollectionStats:
    rows = state.list_rows
    sizes: dict[str, int] = {}
    for shelf, directory in state.directories.items():
        kind = shelf.family.name.lower()
        sizes[kind] = sizes.get(kind, 0) + directory.size_bytes
    return CollectionStats(
        name=state.name,
        dimensions=state.dimensions,
        metric=state.metric.value,
        rows=state.head.rows,
        hidden_rows=state.head.hidden,
        dead_rows=state.head.dead,
        texts=state.head.texts,
        lists=len(state.centroids),
        list_rows_median=int(np.median(rows)) if len(rows) else 0,
        list_rows_max=int(rows.max(initial=0)),
        blocks=sum(len(directory.fragments) for directory in state.directories.values()),
        stored_bytes=sum(sizes.values()),
        resident_bytes=state.size_bytes,
        sweeping=state.head.sweep is not None,
        attributes={record.name: record.type.value for record in state.head.attributes},
        bytes_by_kind=sizes,
        rows_without_vector=max(0, state.head.rows + state.head.hidden - state.stored_vectors),
        damage=tuple(state.lost_of(tuple(Family))),
    )


def unreadable_stats(name: CollectionName, why: PenstockError) -> CollectionStats:
    """Those of a collection that cannot even be opened: nothing is known but its damage."""
    return CollectionStats(name, 0, "unknown", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, sweeping=False, damage=(str(why),))
