"""Run one trial under many seeds, within a count or a time, and make a failure repeatable with one command.

A trial is a function of a seed. What it returns, if anything, is its fingerprint: a share of the seeds
is run twice, and a different fingerprint the second time fails the campaign, because a failure that
cannot be replayed is worth little. Several campaigns share one `Budget` of time by weight.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from penstock.clock import SYSTEM_CLOCK, Clock, Deadline
from penstock.errors import InvalidInput

__all__ = ["Budget", "CampaignTally", "run_campaign", "seeds_of"]

# One seed in so many is run a second time: enough to meet chance at once, cheap enough to leave on.
_REPEAT_EVERY: Final = 100


@dataclass(frozen=True)
class CampaignTally:
    """What a campaign that passed has run."""

    runs: int
    first_seed: int
    seconds: float


class Budget:
    """Time that several campaigns share by weight. What one leaves over goes to those after it."""

    def __init__(self, seconds: float, weights: Mapping[str, float], clock: Clock = SYSTEM_CLOCK) -> None:
        if not seconds > 0:
            raise InvalidInput(f"a budget of {seconds:g} s", "no campaign could run", "give a positive number")
        self._deadline = Deadline(clock, seconds)
        self._waiting = dict(weights)

    def share(self, name: str) -> float:
        """Seconds for the campaign that begins now; asked once for each."""
        waiting = sum(self._waiting.values())
        return self._deadline.remaining * self._waiting.pop(name) / waiting


def seeds_of(
    count: int, *, only: int | None = None, instead: int | None = None, endless_from: int | None = None
) -> Iterable[int]:
    """The seeds of a test that asks for `count`.

    `only` is a single seed to replay; `instead` another count; `endless_from` begins at that seed and
    does not end, for a campaign that is bounded by time.
    """
    if only is not None:
        return range(only, only + 1)
    if endless_from is not None:
        return itertools.count(endless_from)
    wanted = count if instead is None else instead
    if wanted < 1:
        raise InvalidInput(f"a campaign of {wanted} seeds", "it would pass without having run")
    return range(wanted)


def run_campaign(
    trial: Callable[[int], object],
    seeds: Iterable[int],
    replay: Callable[[int], str],
    *,
    seconds: float | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> CampaignTally:
    """Run the trial under each seed, the first one always, until the seeds end or `seconds` have passed.

    The first failure is raised with its seed and the command that replays it.
    """
    started, first, runs = clock.monotonic(), -1, 0
    with _garbage_so_far_ignored():
        for seed in seeds:
            first = seed if not runs else first
            _run_seed(trial, seed, runs, replay)
            runs += 1
            if seconds is not None and clock.monotonic() - started >= seconds:
                break
    return CampaignTally(runs, first, clock.monotonic() - started)


@contextmanager
def _garbage_so_far_ignored() -> Iterator[None]:
    """Each seed leaves garbage; what was loaded before need not be searched for it every time."""
    gc.freeze()
    try:
        yield
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
