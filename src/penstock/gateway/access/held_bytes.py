"""How many bytes requests may hold in memory together: bodies as they come, what they unpack to, and large answers.

Bytes count as they arrive, so that a client that announces much and sends little takes no room from others. Over the
bound of its tenant a request is refused with 429, over the bound of all with 503. Whoever holds bytes alone may go on up
to the bounds of a single request: a bound that is smaller than one body refuses nobody for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from penstock.errors import Unavailable
from penstock.gateway.access.limits import TooMany

__all__ = ["ByteLease", "HeldBytes"]


@dataclass(slots=True)
class _Account:
    """Bytes that are held, by how many requests, and how many are under way."""

    bytes_max: int
    size: int = 0
    holders: int = 0
    leases: int = 0

    def has_room(self, lease: ByteLease, count: int) -> bool:
        others = self.holders - (lease.size > 0)
        return self.size + count <= self.bytes_max or not others


@dataclass(slots=True)
class ByteLease:
    """The bytes of one request, given back when it ends."""

    tenant: str
    _share: _Account
    _all: _Account
    size: int = 0

    def take(self, count: int) -> None:
        """Hold more bytes; refused with `TooMany` or `Unavailable` when there is no room for them."""
        if not count:
            return
        if not self._share.has_room(self, count):
            raise TooMany(
                f"tenant {self.tenant} has too many bytes under way",
                f"its requests hold {self._share.size:,} of {self._share.bytes_max:,}",
            )
        if not self._all.has_room(self, count):
            raise Unavailable(
                "the gateway holds too many bytes",
                f"requests under way hold {self._all.size:,} of {self._all.bytes_max:,}",
                "retry after the time in Retry-After",
            )
        for account in (self._share, self._all):
            account.size += count
            account.holders += not self.size
        self.size += count

    def give_back(self) -> None:
        for account in (self._share, self._all):
            account.size -= self.size
            account.holders -= self.size > 0
        self.size = 0


@dataclass(slots=True)
class HeldBytes:
    """Bytes of all requests under way, and of each tenant's."""

    bytes_max: int
    tenant_bytes_max: int
    _all: _Account = field(init=False)
    _tenants: dict[str, _Account] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._all = _Account(self.bytes_max)

    @property
    def size(self) -> int:
        """Bytes that are held now."""
        return self._all.size

    @contextmanager
    def lease(self, tenant: str) -> Iterator[ByteLease]:
        """For the length of one request; tenants without requests are forgotten."""
        share = self._tenants.setdefault(tenant, _Account(self.tenant_bytes_max))
        share.leases += 1
        lease = ByteLease(tenant, share, self._all)
        try:
            yield lease
        finally:
            lease.give_back()
            share.leases -= 1
            if not share.leases:
                del self._tenants[tenant]
