"""How much may be asked for: rates and concurrency by tenant, and attempts to authenticate by address.

Everything is in memory and bounded: whoever is forgotten because too many others came begins with a full bucket.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil
from typing import Final

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import AtCapacity
from penstock.gateway.config import GatewayConfig, TenantLimits
from penstock.ids import SYSTEM_ENTROPY, Entropy

__all__ = ["LoginGuard", "TenantQuotas", "TokenBucket", "TooMany"]

# Tenants and addresses that are remembered at once.
_REMEMBERED_MAX: Final = 10_000
_RETRY_SECONDS_MAX: Final = 60


class TooMany(AtCapacity):
    """A quota is used up; `retry_after_seconds` says when to come back."""

    usual_remedy = "send less, or retry after the time in Retry-After"

    def __init__(self, what: str, why: str = "", remedy: str = "", retry_after_seconds: int = 1) -> None:
        super().__init__(what, why, remedy)
        self.retry_after_seconds = retry_after_seconds


@dataclass(slots=True)
class TokenBucket:
    """A bucket that fills at `rate` a second up to `burst`. What is larger than the bucket empties it."""

    rate: float
    burst: float
    level: float
    at: float

    def missing_seconds(self, amount: float, now: float) -> float:
        """Zero once `amount` may be taken; otherwise the time until then."""
        self.level = min(self.burst, self.level + max(0.0, now - self.at) * self.rate)
        self.at = now
        return max(0.0, (min(amount, self.burst) - self.level) / self.rate)

    def take(self, amount: float) -> None:
        self.level -= amount


class TenantQuotas:
    """Requests, bytes and concurrency of each tenant, and concurrency of all together."""

    def __init__(self, config: GatewayConfig, clock: Clock = SYSTEM_CLOCK) -> None:
        self._config, self._clock = config, clock
        self._tenants: OrderedDict[str, _Usage] = OrderedDict()
        self._under_way = 0

    @contextmanager
    def request(self, tenant: str, body_bytes: int) -> Iterator[None]:
        """Count a request and its announced bytes while it runs; `TooMany` when a quota is used up."""
        usage = self._usage(tenant)
        usage.check(tenant, body_bytes, self._clock.monotonic())
        if self._under_way >= self._config.concurrent_requests:
            raise TooMany("the gateway is busy", f"{self._under_way} requests are under way")
        usage.begin(body_bytes)
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            usage.under_way -= 1

    def more_bytes(self, tenant: str, count: int) -> None:
        """Bytes that a request had not announced; below zero, those that it announced and did not send."""
        self._usage(tenant).bytes.take(count)

    def _usage(self, tenant: str) -> _Usage:
        usage = self._tenants.get(tenant)
        if usage is None:
            usage = self._tenants[tenant] = _Usage.of(self._config.tenant, self._clock.monotonic())
            self._forget_idle()
        self._tenants.move_to_end(tenant)
        return usage

    def _forget_idle(self) -> None:
        if len(self._tenants) > _REMEMBERED_MAX:
            idle = next((name for name, usage in self._tenants.items() if not usage.under_way), None)
            if idle is not None:
                del self._tenants[idle]


@dataclass(slots=True)
class _Usage:
    limits: TenantLimits
    requests: TokenBucket
    bytes: TokenBucket
    under_way: int = 0

    @classmethod
    def of(cls, limits: TenantLimits, now: float) -> _Usage:
        return cls(
            limits,
            TokenBucket(limits.requests_per_second, limits.request_burst, limits.request_burst, now),
            TokenBucket(limits.bytes_per_second, limits.byte_burst, limits.byte_burst, now),
        )

    def check(self, tenant: str, body_bytes: int, now: float) -> None:
        if self.under_way >= self.limits.concurrent_requests:
            raise TooMany(f"tenant {tenant} has too many requests under way", f"{self.under_way} of them")
        for kind, missing in (
            ("requests", self.requests.missing_seconds(1, now)),
            ("bytes", self.bytes.missing_seconds(body_bytes, now)),
        ):
            if missing > 0:
                seconds = min(_RETRY_SECONDS_MAX, ceil(missing))
                raise TooMany(f"tenant {tenant} sends too many {kind}", "its quota is used up", "", seconds)

    def begin(self, body_bytes: int) -> None:
        self.requests.take(1)
        self.bytes.take(body_bytes)
        self.under_way += 1


class LoginGuard:
    """Bounds how often an address may fail to authenticate. A success costs nothing.

    Whoever has shown good credentials from an address goes on there, whatever its neighbours try: showing them again is
    no guess. Credentials that were never good are refused without a look at them, the right ones too.
    """

    def __init__(self, per_minute: int, clock: Clock = SYSTEM_CLOCK, entropy: Entropy = SYSTEM_ENTROPY) -> None:
        self._rate, self._burst, self._clock = per_minute / 60.0, float(per_minute), clock
        self._addresses: OrderedDict[str, TokenBucket] = OrderedDict()
        # Digests of an address with credentials that were good there; the credentials are not kept.
        self._key = entropy.token(32)
        self._good: OrderedDict[bytes, None] = OrderedDict()

    def check(self, address: str, credentials: str | None = None) -> None:
        """`TooMany` for an address that failed too often, unless the credentials were good there."""
        known = self._addresses.get(address)
        if known and (missing := known.missing_seconds(1, self._clock.monotonic())) > 0:
            if credentials is not None and self._digest(address, credentials) in self._good:
                return
            seconds = min(_RETRY_SECONDS_MAX, ceil(missing))
            raise TooMany("too many failed attempts to authenticate", "from this address", "", seconds)

    def failed(self, address: str) -> None:
        now = self._clock.monotonic()
        known = self._addresses.pop(address, None) or TokenBucket(self._rate, self._burst, self._burst, now)
        known.missing_seconds(1, now)
        known.take(1)
        self._addresses[address] = known
        while len(self._addresses) > _REMEMBERED_MAX:
            self._addresses.popitem(last=False)

    def succeeded(self, address: str, credentials: str) -> None:
        digest = self._digest(address, credentials)
        self._good[digest] = None
        self._good.move_to_end(digest)
        if len(self._good) > _REMEMBERED_MAX:
            self._good.popitem(last=False)

    def _digest(self, address: str, credentials: str) -> bytes:
        return blake2b(f"{address} {credentials}".encode(), key=self._key, digest_size=16).digest()
