"""The settings of the gateway: where it listens, what a request may cost, and how much of it a tenant may ask for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final

from penstock.errors import InvalidInput

__all__ = ["GatewayConfig", "NotificationRules", "TenantLimits", "check_networks"]

_MIB: Final = 1 << 20
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class TenantLimits:
    """Quotas of one tenant. A request over one of them is answered 429 with Retry-After."""

    # Requests per second.
    requests_per_second: float = 500.0
    # Requests that may come at once after a pause.
    request_burst: int = 1_000
    # Bytes of request bodies per second, as sent.
    bytes_per_second: float = 64e6
    # Bytes that may come at once after a pause.
    byte_burst: int = 256 * _MIB
    # Requests under way at once.
    concurrent_requests: int = 64
    # Bytes of bodies and answers that requests under way hold in memory.
    concurrent_bytes: int = 256 * _MIB
    # Bytes that a tenant may keep in data files and uploads; more is refused until some of it is gone. 0 has no limit.
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
    """Who is believed besides holders of tokens, and for which buckets, by tenant."""

    # Addresses or networks whose notifications are taken without a token, by tenant.
    addresses: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # Files with keys of signatures, by tenant. Notifications of such a tenant must be signed, and need no token.
    key_files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # Topics of SNS whose signed messages are taken without a token, by tenant.
    topics: dict[str, tuple[str, ...]] = field(default_factory=dict)
    # Buckets of each tenant, by name or URL; a tenant that is not named has those of `buckets`.
    buckets: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for tenant, networks in self.addresses.items():
            check_networks(f"addresses of {tenant}", networks)


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Where the gateway listens, who may use it, and what it takes."""

    # Address to listen on. Another than this machine's own needs `tokens`.
    host: str = "127.0.0.1"
    # Port of HTTP; 0 lets the system choose.
    port: int = 4318
    # Port of OTLP over gRPC; 0 leaves it off.
    grpc_port: int = 0
    # Port of metrics and administration, always on 127.0.0.1; 0 leaves it off.
    admin_port: int = 0
    # File with the digests of tokens, made by `penstock token create`. Without it, only this machine may connect.
    tokens: str | None = None
    # Tenant of requests without a token, when there is no token file.
    default_tenant: str = "default"
    # Host names that requests may ask for, besides this machine's own.
    hosts: tuple[str, ...] = ()
    # Addresses or networks of proxies whose X-Forwarded-For is believed.
    proxies: tuple[str, ...] = ()
    # File with the certificate (PEM) for TLS.
    certificate: str | None = None
    # File with the key of the certificate (PEM).
    certificate_key: str | None = None
    # Size of a body as sent.
    body_bytes_max: int = 16 * _MIB
    # Size of a body after decompression.
    decompressed_bytes_max: int = 64 * _MIB
    # Size of an uploaded document.
    upload_bytes_max: int = 256 * _MIB
    # Time to receive the headers of a request.
    header_seconds_max: float = 10.0
    # Time to receive a whole body.
    body_seconds_max: float = 30.0
    # Time that a connection may be idle between requests.
    idle_seconds_max: float = 60.0
    # Time that a client may take to read a part of an answer.
    send_seconds_max: float = 30.0
    # Size of the headers and the URL of a request.
    header_bytes_max: int = 64 * 1024
    # Time that a request waits for room at the edge before it is refused.
    ingest_seconds_max: float = 5.0
    # Time of one query.
    query_seconds_max: float = 60.0
    # Requests under way at once, over all tenants.
    concurrent_requests: int = 512
    # Bytes of bodies and answers that requests under way hold in memory, over all tenants.
    concurrent_bytes: int = 512 * _MIB
    # Connections at once; one more is answered 503 and closed.
    connections_max: int = 4_096
    # Failed attempts to authenticate that one address may make per minute.
    failed_logins_per_minute: int = 30
    # Buckets whose notifications are taken, by name or URL; empty takes those that the job may read.
    buckets: tuple[str, ...] = ()
    # Who is believed besides holders of tokens, and for which buckets.
    notifications: NotificationRules = field(default_factory=NotificationRules)
    # Quotas of each tenant.
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
    if not value > 0:
        raise InvalidInput(f"{name} = {value}", "it must be above zero")
