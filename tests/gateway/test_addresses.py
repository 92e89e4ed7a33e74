"""Where a request came from: proxies are believed only as far as they are trusted."""

import pytest

from penstock.errors import InvalidInput
from penstock.gateway import GatewayConfig, NotificationRules
from penstock.gateway.access.addresses import Networks, client_address
from penstock.gateway.config import check_networks

PROXIES = Networks(check_networks("proxies", ("10.0.0.0/8", "::1")))


@pytest.mark.parametrize(
    ("connected", "forwarded", "client"),
    [
        ("192.0.2.1", None, "192.0.2.1"),
        # Whoever is no proxy may claim what it likes.
        ("192.0.2.1", "10.1.1.1", "192.0.2.1"),
        ("10.1.1.1", "192.0.2.9", "192.0.2.9"),
        ("::1", "192.0.2.9", "192.0.2.9"),
        ("::ffff:10.1.1.1", "192.0.2.9", "192.0.2.9"),
        # What a client wrote stands in front of what the proxies saw.
        ("10.1.1.1", "127.0.0.1, 192.0.2.9", "192.0.2.9"),
        ("10.1.1.1", "127.0.0.1, 192.0.2.9, 10.2.2.2", "192.0.2.9"),
        # Nothing but proxies: the first of them.
        ("10.1.1.1", "10.3.3.3, 10.2.2.2", "10.3.3.3"),
        ("10.1.1.1", "", "10.1.1.1"),
        ("10.1.1.1", "unknown", "10.1.1.1"),
        ("10.1.1.1", "192.0.2.9, nonsense", "10.1.1.1"),
        ("10.1.1.1", ",".join(["10.2.2.2"] * 5_000), "10.2.2.2"),
        ("", "192.0.2.9", ""),
    ],
)
def test_the_nearest_address_that_is_no_trusted_proxy_counts(connected, forwarded, client):
    assert client_address(connected, forwarded, PROXIES) == client


def test_without_proxies_the_header_is_not_read():
    assert client_address("127.0.0.1", "192.0.2.9", Networks(())) == "127.0.0.1"


@pytest.mark.parametrize("network", ["", "localhost", "10.0.0.1/8", "10.0.0.0/33", "0x7f000001"])
def test_what_is_no_network_is_named_when_the_configuration_is_read(network):
    with pytest.raises(InvalidInput, match="not an address or network"):
        GatewayConfig(proxies=(network,))
    with pytest.raises(InvalidInput, match="addresses of acme"):
        NotificationRules(addresses={"acme": (network,)})
