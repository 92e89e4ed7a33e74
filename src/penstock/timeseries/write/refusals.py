"""Which writes are refused: those of tenants and hours that are damaged, and of sources whose place is in doubt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from penstock.blocks import ChangeRefusals
from penstock.errors import Corrupt, PenstockError
from penstock.timeseries.fingerprints import Fingerprints
from penstock.timeseries.format.keys import BUCKET_MS
from penstock.timeseries.operations import SampleChange, TenantSamples
from penstock.timeseries.write.periods import TooManySeries

__all__ = ["SampleRefusals", "excess_changes"]


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


def excess_changes(changes: Iterable[SampleChange], tenant: str, full: TooManySeries) -> list[SampleChange]:
    """The changes whose new series do not fit any more. What brings only series that are known is always taken."""
    taken = full.known
    excess = []
    for change in changes:
        fresh = _arriving(change, tenant, full.hours)
        fresh = fresh.take(taken.find(fresh) < 0)
        if len(taken) + len(fresh) > len(full.known) + full.room and len(fresh):
            excess.append(change)
        else:
            taken = Fingerprints.concatenate([taken, fresh])
    return excess


def _arriving(change: SampleChange, tenant: str, hours: range) -> Fingerprints:
    """The series that a change brings samples of in some hours, each once."""
    start, end = hours[0] * BUCKET_MS, (hours[-1] + 1) * BUCKET_MS
    parts = []
    for write in change.samples:
        if write.tenant == tenant:
            times = write.batch.timestamps_ms
            rows = np.unique(write.batch.series[(times >= start) & (times < end)])
            parts.append(write.batch.table.fingerprints.take(rows))
    found = Fingerprints.concatenate(parts)
    return found.take(found.unique()[0])
