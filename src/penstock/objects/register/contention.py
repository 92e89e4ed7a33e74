"""How long a register waits before it tries again, so that many writers take turns without knowing each other.

Exponential back-off starves the unlucky: who lost often waits longest. Here all pauses are drawn with
full jitter from a window that follows the conflicts this register has met, and the time a change has
already waited is taken off the window: the oldest change tries at once, a young one lets it pass. The
window is kept from one change to the next, so a winner goes to the back of the queue instead of
winning again. Why these numbers: `docs/decisions/0003-compare-and-swap-register.md`.

Pure: it is told what happened and answers with seconds; the register does the waiting.
"""

from __future__ import annotations

from typing import Final

from penstock.ids import Entropy

__all__ = ["Contention"]

# All windows are in units of one read and one write as this store answers them, so that the same
# numbers serve a local disk (a millisecond) and a store across the world (a second).
STEP_UNITS: Final = 4.0  # a first conflict opens the window by so much, the k-th of one change by 1/sqrt(k) of it
LANDED_FACTOR: Final = 0.75  # each commit narrows it; slow enough that chance does not favour a writer for long
UNDISTURBED_FACTOR: Final = 0.5  # nobody wrote since our last commit: the others are gone
FLOOR_UNITS: Final = 0.5  # even the oldest draws from this much, or two of them would collide for ever
CALL_SECONDS_MIN: Final = 0.0005  # an answer from memory: windows of nothing would not spread anybody
CALL_SECONDS_MAX: Final = 1.0  # a stalled call says nothing about how long a turn takes
# Weight of a new measurement: the last eight calls or so decide.
_CALL_WEIGHT: Final = 0.125


class Contention:
    """The turns of one register among others."""

    def __init__(self, entropy: Entropy, *, window_seconds_max: float) -> None:
        self._entropy = entropy
        self._window_max = window_seconds_max
        self._window = 0.0
        self._call_seconds: float | None = None
        self._conflicts_in_a_row = 0
        self.attempts = 0
        self.conflicts = 0

    @property
    def rate(self) -> float:
        """Conflicts per attempt so far."""
        return self.conflicts / self.attempts if self.attempts else 0.0

    @property
    def calm(self) -> bool:
        """Nobody else seems to write: start at once, and from the value last seen."""
        return self._window < self._unit * FLOOR_UNITS

    def answered(self, seconds: float) -> None:
        """A store call took so long."""
        seconds = min(CALL_SECONDS_MAX, max(CALL_SECONDS_MIN, seconds))
        last = seconds if self._call_seconds is None else self._call_seconds
        self._call_seconds = last + (seconds - last) * _CALL_WEIGHT

    def landed(self) -> None:
        self.attempts += 1
        self._conflicts_in_a_row = 0
        self._window *= LANDED_FACTOR

    def lost(self) -> None:
        """Another writer was first."""
        self.attempts += 1
        self.conflicts += 1
        self._conflicts_in_a_row += 1
        step = self._unit * STEP_UNITS / self._conflicts_in_a_row**0.5
        self._window = min(self._window_max, self._window + step)

    def undisturbed(self) -> None:
        """The object is still as this register last knew it."""
        self._window *= UNDISTURBED_FACTOR

    def pause(self, age_seconds: float) -> float:
        """Seconds to wait before the next try of a change that has waited `age_seconds` already."""
        return self._entropy.uniform(0.0, max(self._unit * FLOOR_UNITS, self._window - age_seconds))

    @property
    def _unit(self) -> float:
        return 2 * (self._call_seconds or CALL_SECONDS_MIN)
