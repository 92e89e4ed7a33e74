"""Which writes are refused: those of tenants and hours that are damaged, and of sources whose place is in doubt."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.blocks import ChangeRefusals
from penstock.errors import Corrupt, PenstockError
from penstock.timeseries.format.keys import BUCKET_MS
from penstock.timeseries.operations import SampleChange, TenantSamples

__all__ = ["SampleRefusals"]


class SampleRefusals(ChangeRefusals[SampleChange]):
    """The refusals of one writer, with the tenants and hours that are set aside."""

    def __init__(self, unknown_positions: Mapping[str, Corrupt]) -> None:
        super().__init__(unknown_positions)
        # Damaged tenants, and damaged hours of tenants.
        self._tenants: dict[str, PenstockError] = {}
        self._hours: dict[tuple[str, int], PenstockError] = {}

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

    def damage(self, change: SampleChange) -> PenstockError | None:
        """The damage that a change would write to, if any."""
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
