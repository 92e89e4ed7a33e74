"""How much a tenant may keep: measured now and then, and counted in between, so that nobody gets far beyond it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import PenstockError
from penstock.gateway.access.limits import TooMany

__all__ = ["MeasureStorage", "StorageQuota"]

# Bytes kept, by tenant.
MeasureStorage = Callable[[], Awaitable[Mapping[str, int]]]

_MEASURED_SECONDS: Final = 60.0
# Space comes back with retention and deletions, which take their time.
_RETRY_SECONDS: Final = 60


class StorageQuota:
    """`bytes_max` for each tenant. What was accepted since the last measurement counts as it was sent."""

    def __init__(self, bytes_max: int, measure: MeasureStorage, clock: Clock = SYSTEM_CLOCK) -> None:
        self._bytes_max, self._measure, self._clock = bytes_max, measure, clock
        self._kept: Mapping[str, int] = {}
        self._since: Counter[str] = Counter()

    def check(self, tenant: str, body_bytes: int) -> None:
        """`TooMany` for a tenant that would keep more than it may; otherwise the bytes are counted."""
        self.check_room(tenant, body_bytes)
        self._since[tenant] += body_bytes

    def check_room(self, tenant: str, body_bytes: int) -> None:
        """`TooMany` for a tenant that would keep more than it may. Nothing is counted: the bytes have not come yet."""
        kept = self._kept.get(tenant, 0) + self._since[tenant]
        if kept + body_bytes > self._bytes_max:
            raise TooMany(
                f"tenant {tenant} has no storage left",
                f"it keeps about {kept:,} bytes of {self._bytes_max:,}",
                "remove data, keep it for a shorter time, or raise storage_bytes",
                _RETRY_SECONDS,
            )

    async def measure(self) -> None:
        """Measure once. What is accepted meanwhile may be in the measurement already, and still counts until the next."""
        before = self._since.copy()
        self._kept = await self._measure()
        self._since -= before

    async def keep_measuring(self) -> None:
        """Measure for ever. A store that does not answer leaves the last measurement, and what was counted since."""
        while True:
            with suppress(PenstockError):
                await self.measure()
            await self._clock.sleep(_MEASURED_SECONDS)
