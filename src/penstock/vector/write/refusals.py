"""Which writes cannot be taken: those of collections set aside, and of sources whose place is in doubt.

A damaged collection is set aside. It is read as far as it can be, and takes no writes until it is repaired or dropped.
A change is taken whole or not at all, so one that names such a collection is refused with all that it holds. Its source
then stays at that change: storing the position of a later one would skip it for good. A source whose stored position
cannot be read is refused likewise, until somebody states the position. All of it lives in memory: whoever opens the
store again finds the damage again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.coordinator import Coordinator, Mark, WriteHandle
from penstock.errors import Corrupt
from penstock.vector.format.keys import CollectionName
from penstock.vector.operations import Change, DropCollection, Receipt, Tend

__all__ = ["ChangeHandle", "Refusals"]

_REPAIR = "run `penstock vector repair`, or drop the collection"


class ChangeHandle(WriteHandle):
    """An accepted change. Waiting for it raises `Corrupt` if it was refused when its flush found damage."""

    __slots__ = ("_receipt",)

    def __init__(self, coordinator: Coordinator[Any, Any], epoch: int, receipt: Receipt) -> None:
        super().__init__(coordinator, epoch)
        self._receipt = receipt

    async def wait(self, mark: Mark) -> None:
        """Return when the change has reached `mark`; raise if it does not get there, or was refused."""
        await super().wait(mark)
        self._receipt.check()


class Refusals:
    """Of one writer."""

    def __init__(self, unknown_positions: Mapping[str, Corrupt]) -> None:
        self._aside: dict[CollectionName, Corrupt] = {}
        # The first change of a source that was refused: its position, and why.
        self._stalled: dict[str, tuple[int, Corrupt]] = {}
        self._unknown = dict(unknown_positions)
        # Accepted writes that were refused later, until somebody is told.
        self._untold: dict[Receipt, None] = {}

    def set_aside(self, name: CollectionName, why: Corrupt) -> bool:
        """Take no more writes for a collection; whether that is new."""
        fresh = name not in self._aside
        self._aside.setdefault(name, why)
        return fresh

    def readmit(self, name: CollectionName) -> None:
        """A collection is whole again, or gone."""
        self._aside.pop(name, None)

    def check_position(self, source: str) -> None:
        """Raise if the stored position of a source cannot be read."""
        if (why := self._unknown.get(source)) is not None:
            raise Corrupt(why.what, why.why, why.remedy)

    def judge(self, change: Change) -> Corrupt | None:
        """Why a change is refused, if it is. Its source stays there, or goes on."""
        why = self._reason(change)
        if change.source is not None and change.position is not None and change.source not in self._unknown:
            stalled = self._stalled.get(change.source)
            if why is not None and (stalled is None or change.position <= stalled[0]):
                self._stalled[change.source] = (change.position, why)
            elif why is None and stalled is not None and change.position == stalled[0]:
                del self._stalled[change.source]
        return why

    def _reason(self, change: Change) -> Corrupt | None:
        if change.source is not None and change.position is not None:
            if (unknown := self._unknown.get(change.source)) is not None:
                return Corrupt(f"changes of {change.source!r} are not taken", str(unknown))
            stalled = self._stalled.get(change.source)
            if stalled is not None and change.position > stalled[0]:
                what = f"the change of {change.source!r} at {change.position} is not taken"
                return Corrupt(what, f"the one at {stalled[0]} was refused: {stalled[1]}", "write that one first")
        for spec, operation in change.operations:
            if not isinstance(operation, Tend | DropCollection) and (damage := self._aside.get(spec.name)) is not None:
                return Corrupt(f"{spec.name} is damaged and takes no writes", str(damage), _REPAIR)
        return None

    def settle(self, receipt: Receipt, why: Corrupt | None) -> None:
        """Note what becomes of a write that was accepted."""
        receipt.refused = why
        if why is None:
            self._untold.pop(receipt, None)
        else:
            self._untold[receipt] = None

    def tell(self) -> None:
        """Raise, once, for writes that were refused after they were accepted, if nobody asked after them."""
        untold = [receipt for receipt in self._untold if not receipt.told]
        self._untold.clear()
        for receipt in untold:
            receipt.told = True
        if untold:
            first = untold[0].refused
            assert first is not None
            raise Corrupt(f"{len(untold)} accepted writes were refused", str(first), _REPAIR)
