"""What a store must hold, as a dictionary, and random changes that follow from their number alone."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from tests.timeseries.stores import HOUR, everything

from penstock.timeseries import SampleBatch, SampleChanges, SeriesReads

__all__ = ["TENANTS", "PlainStore", "change_of", "change_samples"]

TENANTS: Final[tuple[str, ...]] = ("acme", "globex")
_METRICS: Final = ("requests_total", "up")
_HOSTS: Final = 12
_HOURS: Final = 4

Labels = tuple[tuple[str, str], ...]


@dataclass
class PlainStore:
    """Samples by tenant, labels and time."""

    samples: dict[str, dict[Labels, dict[int, float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    first_ms: dict[str, int] = field(default_factory=dict)

    def apply(self, number: int) -> None:
        for tenant, labels, time_ms, value in change_samples(number):
            if time_ms >= self.first_ms.get(tenant, -(1 << 60)):
                self.samples[tenant][labels][time_ms] = value

    def expire(self, before_ms: int, tenants: list[str]) -> None:
        """Remove whole hours; what comes later for them stays away."""
        start = before_ms // HOUR * HOUR
        for tenant in tenants:
            self.first_ms[tenant] = max(start, self.first_ms.get(tenant, start))
            for times in self.samples[tenant].values():
                for time_ms in [each for each in times if each < start]:
                    del times[time_ms]

    def rows(self, tenant: str) -> dict[Labels, list[tuple[int, float]]]:
        return {labels: sorted(times.items()) for labels, times in self.samples[tenant].items() if times}

    async def agrees(self, store: SeriesReads, story: str = "") -> None:
        for tenant in TENANTS:
            assert await everything(store, tenant=tenant) == self.rows(tenant), f"{tenant}: {story}"


def change_samples(number: int) -> list[tuple[str, Labels, int, float]]:
    """The samples of a change: few series and times, so that overwrites and late samples are common."""
    entropy = random.Random(number)
    rows = []
    for _ in range(entropy.randrange(1, 40)):
        labels = {"__name__": entropy.choice(_METRICS), "host": f"h{entropy.randrange(_HOSTS)}"}
        if entropy.random() < 0.3:
            labels["change"] = str(number % 50)
        time_ms = entropy.randrange(_HOURS) * HOUR + entropy.randrange(30) * 60_000
        value = float(number) if entropy.random() < 0.5 else number + entropy.random()
        rows.append((entropy.choice(TENANTS), tuple(sorted(labels.items())), time_ms, value))
    return rows


def change_of(changes: SampleChanges, number: int) -> SampleChanges:
    """The change of this number."""
    rows = change_samples(number)
    for tenant in TENANTS:
        mine = [(labels, time_ms, value) for owner, labels, time_ms, value in rows if owner == tenant]
        tables = sorted({labels for labels, _, _ in mine})
        places = {labels: place for place, labels in enumerate(tables)}
        changes.write(
            SampleBatch.of(
                [dict(labels) for labels in tables],
                [places[labels] for labels, _, _ in mine],
                [time_ms for _, time_ms, _ in mine],
                [value for _, _, value in mine],
            ),
            tenant=tenant,
        )
    return changes
