"""What a caller asks of collections: changes that reach the store whole, in their order, at most once.

A `Change` is the unit: all its operations, on any number of collections, and its source position are flushed
together. Deltas are lists of changes; merging them is appending.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

from penstock.blocks import ChangeReceipt, check_name, check_position, is_stored
from penstock.errors import InvalidInput
from penstock.vector.arrays import Column, Ids
from penstock.vector.attributes import AttributeType, attribute_type
from penstock.vector.format.analysis import TextAnalysis
from penstock.vector.format.identity import Identities
from penstock.vector.format.keys import CollectionName
from penstock.vector.format.metric import DistanceMetric
from penstock.vector.rows import Rows

__all__ = [
    "Change",
    "CollectionSpec",
    "Delete",
    "Discard",
    "DropCollection",
    "Flip",
    "Operation",
    "Remove",
    "Tend",
    "Update",
    "UpdateDocument",
    "Upsert",
    "VectorDelta",
    "Version",
]

# What an operation holds beside its rows.
_OVERHEAD_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class CollectionSpec:
    """A collection, and what it is made with if it does not exist yet."""

    name: CollectionName
    dimensions: int
    metric: DistanceMetric
    analysis: TextAnalysis = TextAnalysis.STEMS

    def check(self, dimensions: int, metric: DistanceMetric) -> None:
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


@dataclass(frozen=True)
class Upsert:
    """Write rows; those of a version stay hidden until it is current."""

    rows: Rows
    # By external id alone, as visible rows are known.
    identities: Identities
    # Versions in the order of their rows, and how many each has; none of rows that are visible at once.
    versions: tuple[tuple[Version, int], ...] = ()
    # By document, version and external id.
    versioned: Identities | None = None

    @cached_property
    def size_bytes(self) -> int:  # asked by everybody who holds it to a bound, and counted anew by Arrow
        return _OVERHEAD_BYTES + self.rows.size_bytes + 32 * len(self.rows)


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove visible rows by external id."""

    identities: Identities
    # The rows that the ids stood for when they were chosen; one that was written again since is spared.
    chosen: Ids | None = None

    @property
    def size_bytes(self) -> int:
        return _OVERHEAD_BYTES + 16 * len(self.identities)


@dataclass(frozen=True)
class Update:
    """Give visible rows other values of some attributes; null takes a value away. Nothing else of a row changes."""

    identities: Identities
    # By attribute, one value for each row.
    columns: Mapping[str, Column]

    @cached_property
    def size_bytes(self) -> int:
        return _OVERHEAD_BYTES + 16 * len(self.identities) + sum(int(each.nbytes) for each in self.columns.values())


@dataclass(frozen=True)
class UpdateDocument:
    """Give all rows of a version of a document the same value of some attributes; null takes it away."""

    document: str
    # None for the version that is current.
    version: str | None
    # By attribute, the one value.
    columns: Mapping[str, Column]

    @cached_property
    def size_bytes(self) -> int:
        return _OVERHEAD_BYTES + sum(int(each.nbytes) for each in self.columns.values())


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
class DropCollection:
    """Remove the collection itself; what follows makes it anew."""

    size_bytes: int = _OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Tend:
    """Do one step of upkeep, if any is due."""

    # Begin a sweep over the whole collection, due or not.
    whole: bool = False
    size_bytes: int = _OVERHEAD_BYTES


Operation: TypeAlias = Upsert | Delete | Update | UpdateDocument | Flip | Discard | Remove | DropCollection | Tend


@dataclass(frozen=True, slots=True)
class Change:
    """Operations that belong together, and the place in a source that they came from."""

    operations: tuple[tuple[CollectionSpec, Operation], ...]
    source: str | None = None
    position: int | None = None
    receipt: ChangeReceipt = field(default_factory=ChangeReceipt, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "position", check_position(self.source, self.position))

    @property
    def size_bytes(self) -> int:
        return _OVERHEAD_BYTES + sum(operation.size_bytes for _, operation in self.operations)

    def is_stored(self, positions: Mapping[str, int]) -> bool:
        """Whether its source has passed it already."""
        return is_stored(positions, self.source, self.position)

    def attributes(self) -> dict[CollectionSpec, dict[str, AttributeType]]:
        """The collections that the change has rows for, and the types of their attributes."""
        found: dict[CollectionSpec, dict[str, AttributeType]] = {}
        for spec, operation in self.operations:
            if isinstance(operation, Upsert | Update | UpdateDocument):
                types = found.setdefault(spec, {})
                for name, kind in _types(operation).items():
                    if types.setdefault(name, kind) is not kind:
                        raise InvalidInput(f"attribute {name!r} is {types[name]} and {kind} in one write")
        return found


def _types(operation: Upsert | Update | UpdateDocument) -> dict[str, AttributeType]:
    if isinstance(operation, Upsert):
        return operation.rows.attribute_types()
    found = {name: attribute_type(values.type) for name, values in operation.columns.items()}
    return {name: kind for name, kind in found.items() if kind is not None}


@dataclass(slots=True)
class VectorDelta:
    """Changes that are not flushed yet, in their order."""

    changes: list[Change] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(change.size_bytes for change in self.changes)

    def merge(self, later: VectorDelta) -> None:
        self.changes.extend(later.changes)
