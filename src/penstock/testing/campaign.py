"""Run one trial under many seeds, and make a failure repeatable with one command.

A trial is a function of a seed. What it returns, if anything, is its fingerprint: a share of the seeds
is run twice, and a different fingerprint the second time fails the campaign, because a failure that
cannot be replayed is worth little.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from typing import Final

from penstock.errors import InvalidInput

__all__ = ["LONG_FACTOR", "run_campaign", "seeds_of"]

# A long campaign runs so many times the usual seeds: about a quarter of an hour instead of half a minute.
LONG_FACTOR: Final = 25

# One seed in so many is run a second time: enough to meet chance at once, cheap enough to leave on.
_REPEAT_EVERY: Final = 100


def seeds_of(count: int, *, only: int | None = None, instead: int | None = None, long_from: int | None = None) -> range:
    """The seeds of a test that asks for `count`.

    `only` is a single seed to replay; `instead` another count; `long_from` makes it a long campaign
    that begins at that seed, so that each one explores new ones.
    """
    if only is not None:
        return range(only, only + 1)
    wanted = count if instead is None else instead
    if wanted < 1:
        raise InvalidInput(f"a campaign of {wanted} seeds", "it would pass without having run")
    if long_from is not None:
        return range(long_from, long_from + wanted * (LONG_FACTOR if instead is None else 1))
    return range(wanted)


def run_campaign(trial: Callable[[int], object], seeds: Iterable[int], replay: Callable[[int], str]) -> None:
    """Run the trial under each seed. The first failure is raised with its seed and the command that replays it."""
    # Each seed leaves garbage; what was loaded before need not be searched for it every time.
    gc.freeze()
    try:
        for number, seed in enumerate(seeds):
            _run_seed(trial, seed, number, replay)
    finally:
        gc.unfreeze()


def _run_seed(trial: Callable[[int], object], seed: int, number: int, replay: Callable[[int], str]) -> None:
    try:
        fingerprint = trial(seed)
        if number % _REPEAT_EVERY == 0 and fingerprint is not None:
            again = trial(seed)
            assert again == fingerprint, f"not repeatable: {fingerprint} at first, then {again}"
    except BaseException as error:
        error.add_note(f"seed {seed} failed, the {number + 1}. of this run; replay it with\n    {replay(seed)}")
        raise
