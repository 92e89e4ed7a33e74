"""What is checked of a bucket before a writer is opened in it: that it answers, and that it can hold a fence.

SlateDB fences writers and orders manifests by conditional writes, and takes it on trust that they are enforced. On a
server that ignores them two writers overwrite each other's manifests, and the store cannot be opened again. So they are
tried first, by the probe that `penstock.objects` opens its stores with, below the store's own path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from penstock.clock import Clock
from penstock.errors import Unsupported
from penstock.keyvalue.engine import check_reachable
from penstock.keyvalue.location import Location
from penstock.objects import StoreUrl, open_store

__all__ = ["check_bucket"]


async def check_bucket(
    location: Location, options: Mapping[str, Any], entries: dict[str, str], *, probe: bool, clock: Clock
) -> None:
    """Raise what keeps a writer from this bucket. The two looks are made side by side: opening stays fast."""
    looks = [check_reachable(location, entries)]
    if probe:
        looks.append(_probe(location, options, clock))
    for outcome in await asyncio.gather(*looks, return_exceptions=True):
        # In this order: whoever cannot reach the bucket at all is told so in SlateDB's words.
        if outcome is not None:
            raise outcome


async def _probe(location: Location, options: Mapping[str, Any], clock: Clock) -> None:
    url = str(StoreUrl(location.scheme, location.place, location.path))
    try:
        store = await open_store(url, clock=clock, **options)
    except Unsupported as error:
        remedy = "use a store that enforces them; a follower can still read it"
        raise Unsupported(f"{location} cannot have a writer", error.why, remedy) from error
    await store.close()
