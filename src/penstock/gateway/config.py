"""The settings of the gateway: where it listens, what a request may cost, and how much of it a tenant may ask for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from math import inf
from typing import Final

from penstock.errors import InvalidInput

__all__ = ["GatewayConfig", "NotificationRules", "TenantLimits", "check_networks"]

_MIB: Final = 1 << 20
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """Quotas of one tenant. A request over a quota is answered with 429 and `Retry-After`."""

    # Maximum requests per second.
    requests_per_second: float = 500.0
    # Requests that may arrive at once after a pause.
    request_burst: int = 1_000
    # Maximum bytes of request bodies per second, as sent.
    bytes_per_second: float = 64e6
    # Bytes that may arrive at once after a pause.
    byte_burst: int = 256 * _MIB
    # Maximum requests in progress.
    concurrent_requests: int = 64
    # Maximum bytes of bodies and answers that requests in progress hold in memory.
    concurrent_bytes: int = 256 * _MIB
    # Maximum bytes in data files and uploads. Above it, writes are refused until something is deleted. 0 is no
    # limit.
    storage_bytes: int = 0

    def __post_init__(self) -> None:
        if self.storage_bytes < 0:
            raise InvalidInput(f"storage_bytes = {self.storage_bytes}", "it must not be below zero")
        for name in (
            "requests_per_second",
            "request_burst",
            "bytes_per_second",
            "byte_burst",
            "concurrent_requests",
            "concurrent_bytes",
        ):
            _check_positive(name, getattr(self, name))


@dataclass(frozen=True, slots=True)
class NotificationRules:
    """Notifications that are accepted without a token, and the buckets of each tenant."""

    # Addresses or networks whose notifications are accepted without a token, by tenant.
    addresses: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # Files with signature keys, by tenant. Notifications of these tenants must be signed, and need no token.
    key_files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # SNS topics whose signed messages are accepted without a token, by tenant.
    topics: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # Buckets of each tenant, by name or URL. A tenant without an entry has those of the gateway's `buckets`.
    buckets: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for tenant, networks in self.addresses.items():
            check_networks(f"addresses of {tenant}", networks)


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Listeners, access and limits of the gateway."""

    # Address to listen on. An address other than loopback needs `tokens`.
    host: str = "127.0.0.1"
    # Port of HTTP; 0 lets the system choose.
    port: int = 4318
    # Port of OTLP over gRPC; 0 turns it off.
    grpc_port: int = 0
    # Port of metrics and administration, always on 127.0.0.1; 0 turns it off.
    admin_port: int = 0
    # File of `penstock token create`. Without it, only this machine may connect.
    tokens: str | None = None
    # Tenant of requests without a token, when there is no token file.
    default_tenant: str = "default"
    # Host names that requests may name, besides this machine's own.
    hosts: tuple[str, ...] = ()
    # Addresses or networks of trusted proxies, whose `X-Forwarded-For` is used.
    proxies: tuple[str, ...] = ()
    # TLS certificate file (PEM).
    certificate: str | None = None
    # Key file of the certificate (PEM).
    certificate_key: str | None = None
    # Maximum size of a body as sent, in bytes.
    body_bytes_max: int = 16 * _MIB
    # Maximum size of a decompressed body, in bytes.
    decompressed_bytes_max: int = 64 * _MIB
    # Maximum size of an uploaded document, in bytes.
    upload_bytes_max: int = 256 * _MIB
    # Time limit for receiving the headers of a request, in seconds.
    header_seconds_max: float = 10.0
    # Time limit for receiving a body, in seconds.
    body_seconds_max: float = 30.0
    # Maximum idle time of a connection between requests, in seconds.
    idle_seconds_max: float = 60.0
    # Time limit for a client to read a part of an answer, in seconds.
    send_seconds_max: float = 30.0
    # Maximum size of the headers and the URL of a request, in bytes.
    header_bytes_max: int = 64 * 1024
    # Maximum time that a request waits for room at the edge, in seconds.
    ingest_seconds_max: float = 5.0
    # Time limit of one query, in seconds.
    query_seconds_max: float = 60.0
    # Maximum requests in progress, over all tenants.
    concurrent_requests: int = 512
    # Maximum bytes of bodies and answers that requests in progress hold in memory, over all tenants. More is
    # refused with 503, unless no other request holds any.
    concurrent_bytes: int = 512 * _MIB
    # Maximum connections. One more is answered with 503 and closed.
    connections_max: int = 4_096
    # Maximum failed authentications per minute from one address.
    failed_logins_per_minute: int = 30
    # Buckets whose notifications are accepted, by name or URL. Empty accepts those that the job may read.
    buckets: tuple[str, ...] = ()
    # Notifications accepted without a token: see `NotificationRules`.
    notifications: NotificationRules = field(default_factory=NotificationRules)
    # Quotas of each tenant: see `TenantLimits`.
    tenant: TenantLimits = field(default_factory=TenantLimits)

    def __post_init__(self) -> None:
        for name in ("port", "grpc_port", "admin_port"):
            if not 0 <= getattr(self, name) <= 65_535:
                raise InvalidInput(f"{name} = {getattr(self, name)}", "a port is between 0 and 65535")
        for name in (
            "body_bytes_max",
            "decompressed_bytes_max",
            "upload_bytes_max",
            "header_seconds_max",
            "body_seconds_max",
            "idle_seconds_max",
            "send_seconds_max",
            "header_bytes_max",
            "ingest_seconds_max",
            "query_seconds_max",
            "concurrent_requests",
            "concurrent_bytes",
            "connections_max",
            "failed_logins_per_minute",
        ):
            _check_positive(name, getattr(self, name))
        check_networks("proxies", self.proxies)
        if (self.certificate is None) != (self.certificate_key is None):
            raise InvalidInput(
                "TLS is half configured", "it needs certificate and certificate_key", "give both or none"
            )
        if self.tokens is None and self.host not in _LOOPBACK:
            raise InvalidInput(
                f"host = {self.host!r} without tokens",
                "everyone who can reach this address could read and write",
                "create tokens with `penstock token create` and set `tokens` to their file, or listen on 127.0.0.1",
            )

    def check_certificate(self) -> None:
        """Refuse a certificate or a key that TLS cannot use."""
        import ssl

        if self.certificate is None:
            return
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self.certificate, self.certificate_key)
        except (OSError, ssl.SSLError) as error:
            why = f"{self.certificate} with the key {self.certificate_key}: {error}"
            raise InvalidInput(
                "the certificate cannot be used", why, "check certificate and certificate_key"
            ) from error


def check_networks(name: str, networks: Iterable[str]) -> tuple[IPv4Network | IPv6Network, ...]:
    """Addresses and networks as such; `InvalidInput` names the one that is none."""
    found = []
    for text in networks:
        try:
            found.append(ip_network(text))
        except ValueError as error:
            raise InvalidInput(
                f"{name}: {text!r} is not an address or network", str(error), "write 10.0.0.0/8"
            ) from None
    return tuple(found)


def _check_positive(name: str, value: float) -> None:
    # NaN is neither above nor below zero.
    if not 0 < value < inf:
        raise InvalidInput(f"{name} = {value}", "it must be a number above zero")
