"""Who sends a notification, when no token tells: a signature, a message of SNS, or the address that it comes from.

Each is configured for a tenant, and so tells the tenant. Nothing of a delivery is stored before one of them holds. A
tenant that has keys is believed by its signatures alone, whatever else a delivery brings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from penstock.documents.notifications import SIGNATURE_HEADER, HmacTrust, NotificationMessage, SnsTrust
from penstock.errors import PermissionDenied
from penstock.gateway.access.addresses import Networks
from penstock.gateway.access.tokens import Principal, Scope, Unauthenticated
from penstock.gateway.config import NotificationRules, check_networks
from penstock.gateway.http.exchange import HttpExchange
from penstock.indexing import Credentials
from penstock.objects import StoreSpec

__all__ = ["NotificationSenders", "Sender"]

_TOPIC_HEADER: Final = "x-amz-sns-topic-arn"
_WRITE: Final = frozenset({Scope.WRITE})


@dataclass(frozen=True)
class Sender:
    """Who sent a delivery. `signed` notes that it was taken; `sns` believes the messages of the tenant's topics."""

    principal: Principal
    sns: SnsTrust | None
    signed: HmacTrust | None


class NotificationSenders:
    """`credentials` are the keys and topics of each tenant; `address` returns the address of a request."""

    def __init__(
        self,
        rules: NotificationRules,
        credentials: Mapping[str, Credentials],
        spec: StoreSpec,
        address: Callable[[HttpExchange], str],
    ) -> None:
        """Deliveries that were taken are noted at `spec`."""
        self._address = address
        # For as long as the gateway runs: each remembers certificates, and which topics sign with SHA-256.
        self._sns = {tenant: known.sns() for tenant, known in credentials.items()}
        self._signatures = {
            tenant: signed for tenant, known in credentials.items() if (signed := known.signatures(spec)) is not None
        }
        self._networks = {
            tenant: Networks(check_networks(f"addresses of {tenant}", networks))
            for tenant, networks in rules.addresses.items()
        }
        self._topics = {topic: tenant for tenant, known in credentials.items() for topic in known.topics}

    def proves_itself(self, exchange: HttpExchange) -> bool:
        """Whether a delivery without a token brings something else to be believed for."""
        return "authorization" not in exchange.headers and (
            (SIGNATURE_HEADER in exchange.headers and bool(self._signatures))
            or exchange.headers.get(_TOPIC_HEADER) in self._topics
            or self._neighbour(exchange) is not None
        )

    def sender(self, exchange: HttpExchange, delivery: NotificationMessage) -> Sender:
        """Whoever showed a token, or is believed for something else; `Unauthenticated` when nothing holds."""
        try:
            tenant = exchange.principal.tenant or self._tenant(exchange, delivery)
            signed = self._signatures.get(tenant)
            if signed is not None:
                signed.verify(delivery)
        except PermissionDenied as error:
            raise Unauthenticated(error.what, error.why, error.remedy) from error
        principal = exchange.principal if exchange.principal.tenant else Principal(tenant, _WRITE)
        return Sender(principal, self._sns.get(tenant), signed)

    def _tenant(self, exchange: HttpExchange, delivery: NotificationMessage) -> str:
        if SIGNATURE_HEADER in exchange.headers:
            return self._signer(delivery)
        # What a topic claims is proved when its message is read.
        found = self._topics.get(exchange.headers.get(_TOPIC_HEADER, "")) or self._neighbour(exchange)
        if found is None:
            raise Unauthenticated("a notification was rejected", "nothing tells who sent it")
        return found

    def _signer(self, delivery: NotificationMessage) -> str:
        refused: PermissionDenied | None = None
        for tenant, signed in self._signatures.items():
            try:
                signed.verify(delivery)
            except PermissionDenied as error:
                refused = error
            else:
                return tenant
        raise refused or Unauthenticated("a notification was rejected", "no key is configured for it")

    def _neighbour(self, exchange: HttpExchange) -> str | None:
        address = self._address(exchange)
        return next((tenant for tenant, networks in self._networks.items() if address in networks), None)
