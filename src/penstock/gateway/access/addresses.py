"""Where a request came from: the address that connected, or the one that a trusted proxy saw.

`X-Forwarded-For` is a list to which every proxy appends. It is read from its end, and only as far as the addresses are
those of trusted proxies: whatever a client wrote in front of them is never believed.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

__all__ = ["Networks", "client_address"]

_FORWARDED_MAX: Final = 20


class Networks:
    """A set of networks. An IPv4 address that comes as IPv6 is the IPv4 address."""

    def __init__(self, networks: Iterable[IPv4Network | IPv6Network]) -> None:
        self._networks = tuple(networks)

    def __contains__(self, address: str) -> bool:
        found = _parsed(address)
        return found is not None and any(
            found.version == network.version and found in network for network in self._networks
        )

    def __bool__(self) -> bool:
        return bool(self._networks)


def client_address(connected: str, forwarded: str | None, proxies: Networks) -> str:
    """The address that a request counts for; `forwarded` is the header."""
    address = connected
    hops = forwarded.split(",")[-_FORWARDED_MAX:] if forwarded else []
    while hops and address in proxies:
        hop = _parsed(hops.pop().strip())
        if hop is None:
            # Not an address: the last that is known stands.
            break
        address = str(hop)
    return address


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(address)
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found
