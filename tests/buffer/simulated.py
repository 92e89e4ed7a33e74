"""`@simulated` runs an async test in a world of its own, under several seeds: the promise must hold in any order."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from penstock.testing import Simulation, simulate

SEEDS = 5


def simulated(test: Callable[[Simulation], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        for seed in range(SEEDS):
            simulate(test, seed)

    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    return run
