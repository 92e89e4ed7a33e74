"""Which writes are refused: those of collections that are set aside, and of sources whose place is in doubt.

A damaged collection is set aside. It is read as far as it can be, and takes no writes until it is repaired or dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.blocks import ChangeRefusals
from penstock.errors import Corrupt
from penstock.vector.format.keys import CollectionName
from penstock.vector.operations import Change, DropCollection, Tend

__all__ = ["Refusals"]

_REPAIR = "run `penstock vector repair`, or drop the collection"


class Refusals(ChangeRefusals[Change]):
    """The refusals of one writer, with the collections that are set aside."""

    def __init__(self, unknown_positions: Mapping[str, Corrupt]) -> None:
        super().__init__(unknown_positions)
        self._aside: dict[CollectionName, Corrupt] = {}

    def set_aside(self, name: CollectionName, why: Corrupt) -> bool:
        """Take no more writes for a collection; whether that is new."""
        fresh = name not in self._aside
        self._aside.setdefault(name, why)
        return fresh

    def readmit(self, name: CollectionName) -> None:
        """A collection is whole again, or gone."""
        self._aside.pop(name, None)

    def damage(self, change: Change) -> Corrupt | None:
        """The damage that a change would write to, if any."""
        for spec, operation in change.operations:
            if not isinstance(operation, Tend | DropCollection) and (damage := self._aside.get(spec.name)) is not None:
                return Corrupt(f"{spec.name} is damaged and takes no writes", str(damage), _REPAIR)
        return None
