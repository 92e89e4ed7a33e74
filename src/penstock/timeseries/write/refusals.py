"""Which writes cannot be taken: those of tenants and hours set aside, and of sources whose place is in doubt.

A change is taken whole or not at all, so one that names a damaged tenant or hour is refused with all that it holds. Its
source then stays at that change: storing the position of a later one would skip it for good. A source whose stored
position cannot be read is refused likewise. All of it lives in memory: whoever opens the store again finds the damage
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.coordinator import Coordinator, Mark, WriteHandle
from penstock.errors import Corrupt, PenstockError
from penstock.timeseries.format.keys import BUCKET_MS
from penstock.timeseries.operations import SampleChange, SampleReceipt, TenantSamples

__all__ = ["SampleHandle", "SampleRefusals"]


class SampleHandle(WriteHandle):
    """An accepted change. Waiting for it raises if it was refused when its flush found damage or a bound."""

    __slots__ = ("_receipt",)

    def __init__(self, coordinator: Coordinator[Any, Any], epoch: int, receipt: SampleReceipt) -> None:
        super().__init__(coordinator, epoch)
        self._receipt = receipt

    async def wait(self, mark: Mark) -> None:
        """Return when the change has reached `mark`; raise if it does not get there, or was refused."""
        await super().wait(mark)
        self._receipt.check()


class SampleRefusals:
    """Of one writer."""

    def __init__(self, unknown_positions: Mapping[str, Corrupt]) -> None:
        # Damaged tenants, and damaged hours of tenants.
        self._tenants: dict[str, PenstockError] = {}
        self._hours: dict[tuple[str, int], PenstockError] = {}
        # The first change of a source that was refused: its position, and why.
        self._stalled: dict[str, tuple[int, PenstockError]] = {}
        self._unknown = dict(unknown_positions)
        # Accepted writes that were refused later, until somebody is told.
        self._untold: dict[SampleReceipt, None] = {}

    def set_aside(self, tenant: str, hour: int | None, why: PenstockError) -> bool:
        """Take no more writes for a tenant, or for one hour of it; whether that is new."""
        if hour is None:
            fresh = tenant not in self._tenants
            self._tenants.setdefault(tenant, why)
            return fresh
        fresh = (tenant, hour) not in self._hours
        self._hours.setdefault((tenant, hour), why)
        return fresh

    def readmit(self, tenant: str, before_hour: int) -> None:
        """Hours that were removed are whole again."""
        for known in [key for key in self._hours if key[0] == tenant and key[1] < before_hour]:
            del self._hours[known]

    def check_position(self, source: str) -> None:
        """Raise if the stored position of a source cannot be read."""
        if (why := self._unknown.get(source)) is not None:
            raise Corrupt(why.what, why.why, why.remedy)

    def judge(self, change: SampleChange) -> PenstockError | None:
        """Why a change is refused, if it is. Its source stays there, or goes on."""
        return self.stall(change, self._reason(change))

    def stall(self, change: SampleChange, why: PenstockError | None) -> PenstockError | None:
        """Note where a source stays, or that it goes on."""
        if change.source is not None and change.position is not None and change.source not in self._unknown:
            stalled = self._stalled.get(change.source)
            if why is not None and (stalled is None or change.position <= stalled[0]):
                self._stalled[change.source] = (change.position, why)
            elif why is None and stalled is not None and change.position == stalled[0]:
                del self._stalled[change.source]
        return why

    def _reason(self, change: SampleChange) -> PenstockError | None:
        if change.source is not None and change.position is not None:
            if (unknown := self._unknown.get(change.source)) is not None:
                return Corrupt(f"changes of {change.source!r} are not taken", str(unknown))
            stalled = self._stalled.get(change.source)
            if stalled is not None and change.position > stalled[0]:
                what = f"the change of {change.source!r} at {change.position} is not taken"
                return Corrupt(what, f"the one at {stalled[0]} was refused: {stalled[1]}", "write that one first")
        if not self._tenants and not self._hours:
            return None
        return next((why for write in change.samples if (why := self._damage(write)) is not None), None)

    def _damage(self, write: TenantSamples) -> PenstockError | None:
        if (why := self._tenants.get(write.tenant)) is not None:
            return why
        times = write.batch.timestamps_ms
        for (tenant, hour), why in self._hours.items():
            start = hour * BUCKET_MS
            if tenant == write.tenant and bool(((times >= start) & (times < start + BUCKET_MS)).any()):
                return why
        return None

    def settle(self, receipt: SampleReceipt, why: PenstockError | None) -> None:
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
            raise type(first)(f"{len(untold)} accepted writes were refused", str(first), first.remedy)
