"""Which writes are refused: those of damaged parts of a store, and of sources whose place is in doubt.

A change is taken whole or not at all, so one that names a damaged part is refused with all that it holds. Its source
then stays at that change: storing the position of a later one would skip it for good. A source whose stored position
cannot be read is refused likewise, until somebody states the position. All of it lives in memory: whoever opens the
store again finds the damage again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from penstock.errors import Corrupt, PenstockError

__all__ = ["ChangeReceipt", "ChangeRefusals", "SourcedChange"]


@dataclass(slots=True, eq=False)
class ChangeReceipt:
    """The outcome of an accepted change: whether its flush had to leave it out."""

    refused: PenstockError | None = None
    # Whether somebody who waited for the change has been told.
    reported: bool = False

    def check(self) -> None:
        """Raise if the change was refused."""
        if self.refused is not None:
            self.reported = True
            raise type(self.refused)(self.refused.what, self.refused.why, self.refused.remedy)


class SourcedChange(Protocol):
    """A change with the place in a source that it came from, if it came from one."""

    @property
    def source(self) -> str | None: ...

    @property
    def position(self) -> int | None: ...


C = TypeVar("C", bound=SourcedChange)


class ChangeRefusals(Generic[C]):
    """The refusals of one writer. A store says which of its parts are damaged."""

    def __init__(self, unknown_positions: Mapping[str, Corrupt]) -> None:
        # The first change of a source that was refused: its position, and why.
        self._stalled: dict[str, tuple[int, PenstockError]] = {}
        self._unknown = dict(unknown_positions)
        # Accepted writes that were refused later, until somebody is told.
        self._unreported: dict[ChangeReceipt, None] = {}

    @abstractmethod
    def damage(self, change: C) -> PenstockError | None:
        """The damage that a change would write to, if any."""

    def check_position(self, source: str) -> None:
        """Raise if the stored position of a source cannot be read."""
        if (why := self._unknown.get(source)) is not None:
            raise Corrupt(why.what, why.why, why.remedy)

    def judge(self, change: C) -> PenstockError | None:
        """Why a change is refused, if it is. Its source stays there, or goes on."""
        return self.stall(change, self._doubt(change) or self.damage(change))

    def stall(self, change: C, why: PenstockError | None) -> PenstockError | None:
        """Note where a source stays, or that it goes on."""
        if change.source is not None and change.position is not None and change.source not in self._unknown:
            stalled = self._stalled.get(change.source)
            if why is not None and (stalled is None or change.position <= stalled[0]):
                self._stalled[change.source] = (change.position, why)
            elif why is None and stalled is not None and change.position == stalled[0]:
                del self._stalled[change.source]
        return why

    def _doubt(self, change: C) -> PenstockError | None:
        """Why the place of the change's source is in doubt, if it is."""
        if change.source is None or change.position is None:
            return None
        if (unknown := self._unknown.get(change.source)) is not None:
            return Corrupt(f"changes of {change.source!r} are refused", str(unknown))
        stalled = self._stalled.get(change.source)
        if stalled is None or change.position <= stalled[0]:
            return None
        what = f"the change of {change.source!r} at {change.position} is refused"
        return Corrupt(what, f"the one at {stalled[0]} was refused: {stalled[1]}", "write that one first")

    def settle(self, receipt: ChangeReceipt, why: PenstockError | None) -> None:
        """Note what becomes of a write that was accepted."""
        receipt.refused = why
        if why is None:
            self._unreported.pop(receipt, None)
        else:
            self._unreported[receipt] = None

    def report(self) -> None:
        """Raise, once, for accepted writes that were refused later and that nobody waited for."""
        unreported = [receipt for receipt in self._unreported if not receipt.reported]
        self._unreported.clear()
        for receipt in unreported:
            receipt.reported = True
        if unreported:
            first = unreported[0].refused
            assert first is not None
            raise type(first)(f"{len(unreported)} accepted writes were refused", str(first), first.remedy)
