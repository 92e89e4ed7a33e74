"""What a caller asks of collections: changes that reach the store whole, in their order, at most once.

A `Change` is the unit: all its operations, on any number of collections, and its source position are flushed
together. Deltas are lists of changes; merging them is appending.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from penstock.errors import Corrupt, InvalidInput
from penstock.vector.attributes import AttributeType
from penstock.vector.bounds import whole_number
from penstock.vector.identity import Identities
from penstock.vector.keys import CollectionName, check_name
from penstock.vector.metric import Metric
from penstock.vector.rows import Rows
from penstock.vector.terms import TextAnalysis

__all__ = [
    "Change",
    "CollectionSpec",
    "Delete",
    "Discard",
    "Drop",
    "Flip",
    "Operation",
    "Receipt",
    "Remove",
    "Tend",
    "Upsert",
    "VectorDelta",
    "Version",
]

# What an operation holds beside its rows.
_OVERHEAD_BYTES: Final = 256
_POSITION_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class CollectionSpec:
    """A collection, and what it is made with if it does not exist yet."""

    name: CollectionName
    dimensions: int
    metric: Metric
    analysis: TextAnalysis = TextAnalysis.STEMS

    def check(self, dimensions: int, metric: Metric) -> None:
        """Refuse to serve a handle of a collection that was dropped, and made again as another."""
        if (dimensions, metric) != (self.dimensions, self.metric):
            raise InvalidInput(
                f"{self.name} with {self.dimensions} dimensions and metric {self.metric}",
                f"it was dropped, and now has {dimensions} dimensions and metric {metric}",
                "open the collection again",
            )


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a document."""

    document: str
    version: str

    def __post_init__(self) -> None:
        check_name("document", self.document)
        check_name("version", self.version)


@dataclass(frozen=True, slots=True)
class Upsert:
    """Write rows; those of a version stay hidden until it is current."""

    rows: Rows
    # By external id alone, as visible rows are known.
    identities: Identities
    # Versions in the order of their rows, and how many each has; none of rows that are visible at once.
    versions: tuple[tuple[Version, int], ...] = ()
    # By document, version and external id.
    versioned: Identities | None = None

    @property
    def size_bytes(self) -> int:
        return _OVERHEAD_BYTES + self.rows.size_bytes + 32 * len(self.rows)


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove visible rows by external id."""

    identities: Identities

    @property
    def size_bytes(self) -> int:
        return _OVERHEAD_BYTES + 16 * len(self.identities)


@dataclass(frozen=True, slots=True)
class Flip:
    """Make a version current, and remove the rows of the one before."""

    version: Version
    size_bytes: int = _OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Discard:
    """Remove the hidden rows of a version."""

    version: Version
    size_bytes: int = _OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a document with all its versions."""

    document: str
    size_bytes: int = _OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Drop:
    """Remove the collection itself; what follows makes it anew."""

    size_bytes: int = _OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Tend:
    """Do one step of upkeep, if any is due."""

    # Begin a sweep over the whole collection, due or not.
    whole: bool = False
    size_bytes: int = _OVERHEAD_BYTES


Operation: TypeAlias = Upsert | Delete | Flip | Discard | Remove | Drop | Tend


@dataclass(slots=True, eq=False)
class Receipt:
    """What became of an accepted change, beside the order of all writes: whether its flush had to leave it out."""

    refused: Corrupt | None = None
    # Whether somebody who asked after the change was told.
    told: bool = False

    def check(self) -> None:
        """Raise if the change was refused."""
        if self.refused is not None:
            self.told = True
            raise Corrupt(self.refused.what, self.refused.why, self.refused.remedy)


@dataclass(frozen=True, slots=True)
class Change:
    """Operations that belong together, and the place in a source that they came from."""

    operations: tuple[tuple[CollectionSpec, Operation], ...]
    source: str | None = None
    position: int | None = None
    receipt: Receipt = field(default_factory=Receipt, compare=False, repr=False)

    def __post_init__(self) -> None:
        if (self.source is None) != (self.position is None):
            raise InvalidInput("a change names a source or a position", "it needs both, or neither")
        if self.source is not None:
            check_name("source", self.source)
        if self.position is not None:
            what, why = f"the position of {self.source!r}", "positions are numbers from 0 on"
            object.__setattr__(self, "position", whole_number(what, self.position, 0, _POSITION_MAX, why))

    @property
    def size_bytes(self) -> int:
        return _OVERHEAD_BYTES + sum(operation.size_bytes for _, operation in self.operations)

    def is_stored(self, positions: Mapping[str, int]) -> bool:
        """Whether its source has passed it already."""
        if self.source is None or self.position is None:
            return False
        return self.position <= positions.get(self.source, -1)

    def attributes(self) -> dict[CollectionSpec, dict[str, AttributeType]]:
        """The collections that the change has rows for, and the types of their attributes."""
        found: dict[CollectionSpec, dict[str, AttributeType]] = {}
        for spec, operation in self.operations:
            if isinstance(operation, Upsert):
                types = found.setdefault(spec, {})
                for name, kind in operation.rows.attribute_types().items():
                    if types.setdefault(name, kind) is not kind:
                        raise InvalidInput(f"attribute {name!r} is {types[name]} and {kind} in one write")
        return found


@dataclass(slots=True)
class VectorDelta:
    """Changes that are not flushed yet, in their order."""

    changes: list[Change] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(change.size_bytes for change in self.changes)

    def merge(self, later: VectorDelta) -> None:
        self.changes.extend(later.changes)
