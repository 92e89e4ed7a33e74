"""What a caller asks of a store: changes that reach it whole, in their order, at most once.

A `SampleChange` is the unit: the batches of all tenants in it and its source position are flushed together. Deltas are
lists of changes; merging them is appending.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from penstock.blocks import ChangeReceipt, check_name, check_position, is_stored
from penstock.timeseries.samples import SampleBatch

__all__ = [
    "DEFAULT_TENANT",
    "Expire",
    "Fold",
    "SampleChange",
    "SampleChanges",
    "SeriesDelta",
    "TenantSamples",
    "stored_changes",
]

DEFAULT_TENANT: Final = "default"
# What a change holds beside its samples.
_OVERHEAD_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class TenantSamples:
    """Samples of one tenant."""

    tenant: str
    batch: SampleBatch
    # Whether its table of series was counted with an earlier write: many batches share one.
    is_table_counted: bool = False

    @property
    def size_bytes(self) -> int:
        return self.batch.samples_bytes + (0 if self.is_table_counted else self.batch.table.size_bytes)


@dataclass(frozen=True, slots=True)
class Fold:
    """Do one step of upkeep of a tenant, if any is due."""

    tenant: str
    # Fold hours that are not closed yet as well.
    whole: bool = False
    size_bytes: int = _OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Expire:
    """Remove all hours of a tenant before this one; they stay away."""

    tenant: str
    before_hour: int
    size_bytes: int = _OVERHEAD_BYTES


Operation: TypeAlias = TenantSamples | Fold | Expire


@dataclass(frozen=True, slots=True)
class SampleChange:
    """Operations that belong together, and the place in a source that they came from."""

    operations: tuple[Operation, ...]
    source: str | None = None
    position: int | None = None
    receipt: ChangeReceipt = field(default_factory=ChangeReceipt, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "position", check_position(self.source, self.position))
        for operation in self.operations:
            check_name("tenant", operation.tenant)

    @property
    def size_bytes(self) -> int:
        return _OVERHEAD_BYTES + sum(operation.size_bytes for operation in self.operations)

    def is_stored(self, positions: Mapping[str, int]) -> bool:
        """Whether its source has passed it already."""
        return is_stored(positions, self.source, self.position)

    @property
    def samples(self) -> Iterator[TenantSamples]:
        return (operation for operation in self.operations if isinstance(operation, TenantSamples))


class SampleChanges:
    """Batches of any number of tenants that are flushed together, with the position they came from."""

    def __init__(self, source: str | None = None, position: int | None = None) -> None:
        self._operations: list[Operation] = []
        self._source = source
        self._position = position

    def write(self, batch: SampleBatch, *, tenant: str = DEFAULT_TENANT) -> SampleChanges:
        """Add a batch. None at all is fine: the position moves on all the same."""
        self._operations.append(TenantSamples(tenant, batch))
        return self

    def change(self) -> SampleChange:
        """What was gathered."""
        return SampleChange(tuple(self._operations), self._source, self._position)


@dataclass(slots=True)
class SeriesDelta:
    """Changes that are not flushed yet, in their order."""

    changes: list[SampleChange] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(change.size_bytes for change in self.changes)

    def merge(self, later: SeriesDelta) -> None:
        self.changes.extend(later.changes)


def stored_changes(deltas: Iterable[SeriesDelta], positions: Mapping[str, int]) -> Iterator[SampleChange]:
    """The changes that a flush of these deltas would store: none that its source has passed, none that was refused."""
    known = dict(positions)
    for delta in deltas:
        for change in delta.changes:
            if change.is_stored(known) or change.receipt.refused is not None:
                continue
            if change.source is not None and change.position is not None:
                known[change.source] = change.position
            yield change
