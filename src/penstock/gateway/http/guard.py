"""Who may send a request: its host, its origin, its token and its quotas, checked before a handler sees it.

The tenant comes from the token alone. A page of another site cannot make a browser send anything that changes
something here: the host must be ours, and a request that a browser sends for another origin is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.gateway.access.addresses import Networks, client_address
from penstock.gateway.access.held_bytes import ByteLease, HeldBytes
from penstock.gateway.access.limits import LoginGuard, TenantQuotas
from penstock.gateway.access.storage import StorageQuota
from penstock.gateway.access.tokens import Forbidden, Principal, Scope, TokenBook, Unauthenticated
from penstock.gateway.config import GatewayConfig, check_networks
from penstock.gateway.http.exchange import HttpExchange

__all__ = ["Guard"]

_SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")
_OWN_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
_EVERY_SCOPE: Final = frozenset(Scope)


class Guard:
    """`book` returns the current tokens, or None on a gateway without tokens."""

    def __init__(
        self,
        config: GatewayConfig,
        book: Callable[[], TokenBook | None],
        clock: Clock = SYSTEM_CLOCK,
        session: Callable[[str | None, TokenBook], Principal | None] = lambda _cookie, _book: None,
        storage: StorageQuota | None = None,
    ) -> None:
        self._config, self._book, self._clock, self._session = config, book, clock, session
        self._logins = LoginGuard(config.failed_logins_per_minute, clock)
        self.quotas = TenantQuotas(config, clock)
        self.held = HeldBytes(config.concurrent_bytes, config.tenant.concurrent_bytes)
        self._storage = storage
        self._body_bytes_max = max(config.body_bytes_max, config.upload_bytes_max)
        self._proxies = Networks(check_networks("proxies", config.proxies))
        self._hosts = _OWN_HOSTS | {config.host} | {host.lower() for host in config.hosts}

    def check_site(self, exchange: HttpExchange) -> None:
        """Refuse a host that is not ours, and what a browser sends for another site."""
        host = exchange.headers.get("host", "")
        if (self._config.tokens is None or self._config.hosts) and _hostname(host) not in self._hosts:
            raise Forbidden(
                f"the host {host[:80]!r} is not served here", "", "add it to `hosts` of the gateway's configuration"
            )
        if exchange.method in _SAFE_METHODS:
            return
        origin = exchange.headers.get("origin")
        if exchange.headers.get("sec-fetch-site") == "cross-site" or (
            origin is not None and origin.partition("://")[2].lower() != host.lower()
        ):
            raise Forbidden("the request comes from a page of another site", "cross-site requests are not allowed")

    def principal(self, exchange: HttpExchange, scope: Scope | None) -> Principal:
        """Who sent the request; `Unauthenticated`, or `Forbidden` for a token without the scope."""
        book = self._book()
        if book is None:
            return Principal(self._config.default_tenant, _EVERY_SCOPE)
        if scope is None:
            return Principal("", frozenset())
        authorization = exchange.headers.get("authorization")
        found = None if authorization else self._session(exchange.headers.get("cookie"), book)
        found = found or self.authenticate(exchange, authorization)
        # Known from here on, also where it is refused for what it asks.
        exchange.principal = found
        if scope not in found.scopes:
            raise Forbidden(f"the token lacks the scope {scope}", "", "use a token with this scope")
        return found

    def authenticate(self, exchange: HttpExchange, authorization: str | None) -> Principal:
        """Whose token it is; failures are counted against the address that they come from."""
        book = self._book()
        assert book is not None, "a gateway without tokens has nobody to authenticate"
        with self.counted_failures(exchange, authorization):
            found = book.authenticate(authorization, self._clock.now_ms())
        self._logins.succeeded(self.address(exchange), authorization or "")
        return found

    @contextmanager
    def counted_failures(self, exchange: HttpExchange, credentials: str | None = None) -> Iterator[None]:
        """Whoever fails in the block too often, by address, is refused before it."""
        address = self.address(exchange)
        self._logins.check(address, credentials)
        try:
            yield
        except Unauthenticated:
            self._logins.failed(address)
            raise

    def address(self, exchange: HttpExchange) -> str:
        """Where the request came from, through trusted proxies."""
        return client_address(exchange.client, exchange.headers.get("x-forwarded-for"), self._proxies)

    @contextmanager
    def admitted(self, exchange: HttpExchange, *, stores: bool = False) -> Iterator[ByteLease]:
        """Count the request against its tenant's quotas while it runs, and hold the bytes of its body.

        `stores` when it adds to what is kept.
        """
        tenant = exchange.principal.tenant
        # What no route reads is refused by its route, and is nobody's debt.
        announced = min(exchange.announced_bytes or 0, self._body_bytes_max)
        keep: Callable[[int], None] = _nothing_kept
        if self._storage and stores:
            self._storage.check_room(tenant, announced)
            keep = partial(self._storage.check, tenant)
        with self.quotas.request(tenant, announced), self.held.lease(tenant) as lease:
            exchange.count_body(lease, keep)
            try:
                yield lease
            finally:
                # What came is known now: more than was announced counts against the next requests, less is given back.
                self.quotas.more_bytes(tenant, exchange.received_bytes - announced)


def _nothing_kept(_count: int) -> None:
    """Of a request that stores nothing, or without a quota on storage."""


def _hostname(host: str) -> str:
    """Without the port."""
    name = host.lower()
    found, bracket, rest = name.partition("]") if name.startswith("[") else ("", "", name)
    plain, colon, port = rest.partition(":")
    # What is no port is a part of the name.
    return found + bracket + plain if colon and (not port or port.isdecimal()) else name
