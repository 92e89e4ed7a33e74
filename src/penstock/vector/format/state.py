"""What is known of a collection at one moment: its head, directories, centroids, and dead and hidden rows.

States never change; a commit makes a new one. All of it is resident while the collection is in use: about
a centroid for every hundred rows, a few dozen bytes for every block, and two bits for every id.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final

import msgspec
import numpy as np

from penstock.blocks import EMPTY, Directory, Shelf, StoreHeader
from penstock.errors import Corrupt
from penstock.vector.arrays import Indices
from penstock.vector.attributes import AttributeType
from penstock.vector.format.analysis import StoredAnalysis, TextAnalysis
from penstock.vector.format.clusters import Centroids
from penstock.vector.format.idset import IdSet
from penstock.vector.format.keys import CollectionName, Family, collection_prefix
from penstock.vector.format.metric import DistanceMetric

__all__ = [
    "LENGTHS",
    "UNNUMBERED",
    "AttributeRecord",
    "CollectionRecord",
    "CollectionState",
    "Head",
    "StoreRecord",
    "Sweep",
    "SweepKind",
]

# The number of a collection that is not in the store yet.
UNNUMBERED: Final = (1 << 32) - 1

# The column that holds how many words each text has. Attributes are numbered from 1.
LENGTHS: Final = Shelf(Family.COLUMN, 0)


class StoreRecord(StoreHeader, frozen=True):
    """The first key of a store."""

    next_collection: int
    # Grows with every commit, so that a repeat of nothing can still be waited for.
    commit: int = 0


class CollectionRecord(msgspec.Struct, frozen=True):
    """What a collection is, for good."""

    number: int
    dimensions: int
    metric: DistanceMetric
    created_ms: int
    # Left out where words are indexed as they are by the plain rule, as in the first collections.
    analysis: StoredAnalysis | msgspec.UnsetType = msgspec.UNSET


class AttributeRecord(msgspec.Struct, frozen=True):
    number: int
    name: str
    type: AttributeType


class SweepKind(StrEnum):
    """What a walk over buckets is for."""

    DEAD = "dead"  # leave dead rows out
    LISTS = "lists"  # shape lists anew, because the collection has outgrown those it has
    WHOLE = "whole"  # both, and make one of small neighbouring buckets


class Sweep(msgspec.Struct, frozen=True):
    """A walk over buckets, and where it goes on."""

    family: int
    column: int
    low: int
    # Rows that were dead when it began and are gone when it ends.
    dead: int
    kind: SweepKind

    @property
    def shaping(self) -> bool:
        """Whether it moves centres and rows between lists."""
        return self.kind is not SweepKind.DEAD


class Head(msgspec.Struct, frozen=True):
    """What changes with every commit of a collection."""

    commit: int = 0
    next_id: int = 0
    next_serial: int = 1
    next_list: int = 0
    # Rows that a search can find; rows of versions that are not current; dead rows that may still lie in blocks.
    rows: int = 0
    hidden: int = 0
    dead: int = 0
    # Texts and words of the rows that a search can find.
    texts: int = 0
    words: int = 0
    # No vector was ever longer: the bound on what a code can hide.
    norm_max: float = 0.0
    # Rows when all lists were last shaped together.
    shaped: int = 0
    attributes: tuple[AttributeRecord, ...] = ()
    sweep: Sweep | None = None
    # Rows that took the place of others since lists were last shaped; left out while there are none.
    replaced: int | msgspec.UnsetType = msgspec.UNSET
    # Numbers of the languages that texts were ever taken for; left out while there are none.
    languages: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True)
class CollectionState:
    """One collection at one moment."""

    name: CollectionName
    record: CollectionRecord
    head: Head
    directories: Mapping[Shelf, Directory]
    centroids: Centroids
    deleted: IdSet = field(default_factory=IdSet)
    hidden: IdSet = field(default_factory=IdSet)
    # Blocks that could not be read when the state was, by shelf: it does as well as it can without them.
    lost: Mapping[Shelf, tuple[str, ...]] = field(default_factory=dict)
    # Those of them whose content was made again, whole, from other blocks.
    rebuilt: frozenset[str] = frozenset()

    @classmethod
    def new(cls, name: CollectionName, record: CollectionRecord) -> CollectionState:
        return cls(name, record, Head(), {}, Centroids.none(record.dimensions))

    @property
    def number(self) -> int:
        return self.record.number

    @cached_property
    def prefix(self) -> bytes:
        """What the keys of all its data begin with."""
        return collection_prefix(self.record.number)

    @property
    def dimensions(self) -> int:
        return self.record.dimensions

    @property
    def metric(self) -> DistanceMetric:
        return self.record.metric

    @property
    def analysis(self) -> TextAnalysis:
        return self.stored_analysis.analysis

    @property
    def stored_analysis(self) -> StoredAnalysis:
        return self.record.analysis or StoredAnalysis.PLAIN_WORDS

    @property
    def languages(self) -> frozenset[int]:
        """Languages that texts were ever taken for."""
        return frozenset(self.head.languages or ())

    def directory(self, shelf: Shelf) -> Directory:
        return self.directories.get(shelf, EMPTY)

    @cached_property
    def attributes(self) -> dict[str, AttributeRecord]:
        return {record.name: record for record in self.head.attributes}

    @cached_property
    def types(self) -> dict[str, AttributeType]:
        return {record.name: record.type for record in self.head.attributes}

    @cached_property
    def visible(self) -> IdSet:
        """Rows that a search can find."""
        return self.deleted.union(self.hidden).complement(self.head.next_id)

    @cached_property
    def all_visible(self) -> bool:
        """Whether no row was ever dead or is hidden, so that a scan needs no selector."""
        return not self.deleted and not self.hidden

    @cached_property
    def list_rows(self) -> Indices:
        """Rows of each list in the order of the centroids, dead ones included."""
        directory = self.directory(Shelf(Family.POSTINGS))
        places = np.searchsorted(directory.lows, self.centroids.lists.astype(np.uint64))
        rows = np.zeros(len(self.centroids), np.int64)
        there = places < len(directory)
        there[there] = directory.lows[places[there]] == self.centroids.lists[there].astype(np.uint64)
        rows[there] = directory.rows[places[there]]
        return rows

    @cached_property
    def stored_vectors(self) -> int:
        """Vectors that lie in blocks, those of dead rows included."""
        return int(self.directory(Shelf(Family.VECTORS)).rows.sum())

    @property
    def placed_rows(self) -> int:
        """Rows that a search by vector can find, at most: it is known exactly when no dead rows lie in blocks."""
        return min(self.head.rows, self.stored_vectors)

    def lost_of(self, families: Container[Family]) -> list[str]:
        """The lost blocks of some families."""
        return [block for shelf, blocks in self.lost.items() if shelf.family in families for block in blocks]

    def require(self, families: Container[Family]) -> None:
        """Raise `Corrupt` if something that these families held is lost."""
        if self.lost_of(families):
            raise self.damage(families)

    def damage(self, families: Container[Family]) -> Corrupt:
        """What is lost of these families, as an error."""
        lost = self.lost_of(families)
        remedy = "restore them, or run `penstock vector repair`"
        return Corrupt(f"{lost[0]} cannot be read", f"{self.name} lacks {len(lost)} blocks", remedy)

    @property
    def mendable(self) -> bool:
        """Whether everything that is lost was made again."""
        return all(block in self.rebuilt for blocks in self.lost.values() for block in blocks)

    @property
    def size_bytes(self) -> int:
        directories = sum(directory.fragments.nbytes for directory in self.directories.values())
        bits = self.deleted.bits.nbytes + self.hidden.bits.nbytes
        return self.centroids.size_bytes + int(directories + bits)
