"""The routing of a store as one object under compare-and-swap: read by everybody who sends or asks, changed by one."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.buffer.routing import Routing, ShardLayout
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Corrupt, InvalidInput, Unsupported
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.objects import ObjectStore, Register, Stamped, StampedFormat
from penstock.observability import SILENT, Observer
from penstock.undecodable import UNDECODABLE

__all__ = ["ROUTING_KEY", "RoutingWatch", "change_routing", "read_routing"]

ROUTING_KEY: Final = "routing"
_FORMAT: Final = 1
# A sender that learns of a new layout late sends to shards that are still drained: no row is lost by it.
REFRESH_SECONDS: Final = 10.0


class _Wire(msgspec.Struct):
    format: int
    routing: Routing


class _RoutingCodec:
    """Before the first change there is one queue."""

    def empty(self) -> Routing:
        return Routing()

    def encode(self, payload: Routing) -> bytes:
        return msgspec.json.encode(_Wire(_FORMAT, payload))

    def decode(self, data: bytes) -> Routing:
        try:
            wire = msgspec.json.decode(data, type=_Wire)
        except (*UNDECODABLE, InvalidInput) as error:
            raise Corrupt("the routing of the queues cannot be read", str(error)) from error
        if wire.format != _FORMAT:
            raise Unsupported(f"format {wire.format} of a routing", f"this release reads {_FORMAT}", "upgrade")
        return wire.routing


async def read_routing(
    store: ObjectStore, base: str = "", *, clock: Clock = SYSTEM_CLOCK, entropy: Entropy = SYSTEM_ENTROPY
) -> Routing:
    """The routing of the queues below `base`."""
    register = _register(store, base, clock, entropy, SILENT)
    try:
        return (await register.read()).payload
    finally:
        await register.close()


async def change_routing(
    store: ObjectStore,
    layout: ShardLayout,
    base: str = "",
    *,
    clock: Clock = SYSTEM_CLOCK,
    entropy: Entropy = SYSTEM_ENTROPY,
    observer: Observer = SILENT,
) -> Routing:
    """Put a layout in force; nothing is written when it is. The routing as it is then."""
    register = _register(store, base, clock, entropy, observer)
    try:
        return (await register.update(lambda value: value.map(lambda found: found.changed_to(layout)))).payload
    finally:
        await register.close()


class RoutingWatch:
    """The routing as it was a short time ago. Belongs to one event loop; the store is its caller's."""

    def __init__(
        self,
        store: ObjectStore,
        base: str = "",
        *,
        refresh_seconds: float = REFRESH_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
    ) -> None:
        self._store, self._base = store, base
        self._refresh_seconds = refresh_seconds
        self._clock, self._entropy = clock, entropy
        self._routing: Routing | None = None
        self._read_at = 0.0

    async def current(self) -> Routing:
        """No older than `refresh_seconds`."""
        now = self._clock.monotonic()
        if self._routing is None or now - self._read_at >= self._refresh_seconds:
            self._routing = await read_routing(self._store, self._base, clock=self._clock, entropy=self._entropy)
            self._read_at = now
        return self._routing


def _register(
    store: ObjectStore, base: str, clock: Clock, entropy: Entropy, observer: Observer
) -> Register[Stamped[Routing]]:
    key = f"{base.strip('/')}/{ROUTING_KEY}" if base.strip("/") else ROUTING_KEY
    form: StampedFormat[Routing] = StampedFormat(_RoutingCodec())
    return Register(store, key, form, name="routing", clock=clock, entropy=entropy, observer=observer)
