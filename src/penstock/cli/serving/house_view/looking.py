"""Looks that cost something are kept for a while: a page that refreshes every two seconds must not load what it shows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final

from penstock.clock import SYSTEM_CLOCK, Clock

__all__ = ["KeptLooks"]

_KEYS_MAX: Final = 256


class KeptLooks:
    """What was found is given again for `seconds`, and for longer the longer it took to find: at most a twentieth of
    one core goes into looking."""

    def __init__(self, seconds: float = 2.0, *, share: float = 20.0, clock: Clock = SYSTEM_CLOCK) -> None:
        self._seconds, self._share, self._clock = seconds, share, clock
        self._found: dict[Hashable, tuple[float, Any]] = {}
        self._looking: dict[Hashable, asyncio.Lock] = {}

    async def get(self, key: Hashable, look: Callable[[], Awaitable[Any]]) -> Any:
        """What `look` gives. Errors are not kept."""
        async with self._looking.setdefault(key, asyncio.Lock()):
            kept = self._found.get(key)
            if kept is not None and self._clock.monotonic() < kept[0]:
                return kept[1]
            began = self._clock.monotonic()
            value = await look()
            ended = self._clock.monotonic()
            if len(self._found) >= _KEYS_MAX:
                self._found.clear()
            self._found[key] = (ended + max(self._seconds, self._share * (ended - began)), value)
            return value

    def forget(self) -> None:
        """Look anew: something was changed."""
        self._found.clear()
