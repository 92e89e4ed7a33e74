"""The bounds of a key-value store reach its opening, and none of them can be nothing."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from penstock.errors import InvalidInput
from penstock.keyvalue import KeyValueConfig, open_follower, open_keyvalue


def test_every_bound_is_one_that_opening_takes_and_has_its_default() -> None:
    taken = inspect.signature(open_keyvalue).parameters
    for name, value in KeyValueConfig().writing.items():
        assert taken[name].default == value
    followed = inspect.signature(open_follower).parameters
    for name, value in KeyValueConfig().reading.items():
        assert followed[name].default == value


@pytest.mark.parametrize("name", KeyValueConfig.__slots__)
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_bound_that_lets_nothing_through_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=name):
        KeyValueConfig(**{name: value})


def test_a_store_opens_with_configured_bounds() -> None:
    async def opened() -> None:
        store = await open_keyvalue("memory://", "a", **KeyValueConfig(cache_bytes_max=1 << 20).writing)
        await store.close()

    asyncio.run(opened())
