"""Deadlines for what is pending: one for all writes, and a short one once somebody waits. Pure.

A deadline counts from the first moment it was wanted. The flush that takes the pending writes clears it, and the
sleeper that is under way by then is not cancelled: it wakes, finds a later deadline or none, and acts on that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import Final

__all__ = ["Alarm", "ArmTimer", "Timer"]

# A timer that wakes early by less than this is on time: float rounding must not make it spin.
_GRACE_SECONDS: Final = 0.001


class Timer(StrEnum):
    """The timers of a coordinator; each is armed at most once at a time."""

    INTERVAL = "interval"  # the longest a write stays pending when nobody waits for it
    COMMIT = "commit"  # the longest it does so when somebody does


@dataclass(frozen=True, slots=True)
class ArmTimer:
    """Report `timer_fired` for `timer` after so many seconds."""

    timer: Timer
    seconds: float


class Alarm:
    """One deadline, and whether it has passed."""

    def __init__(self, timer: Timer, seconds: float) -> None:
        self.since: float | None = None
        self.due = False
        self._timer = timer
        self._seconds = seconds
        self._armed = False

    def set(self, now: float) -> list[ArmTimer]:
        """Want a flush so many seconds from now, unless one is wanted earlier."""
        if self.since is not None:
            return []
        self.since = now
        # Infinity turns it off. An armed one finds out by itself that its deadline has moved.
        return [] if self._armed or not isfinite(self._seconds) else self._arm(self._seconds)

    def fired(self, now: float) -> list[ArmTimer]:
        """The sleeper woke: the deadline has passed, or the rest of its time is waited for."""
        self._armed = False
        if self.since is None:
            return []
        remaining = self.since + self._seconds - now
        if remaining > _GRACE_SECONDS:
            return self._arm(remaining)
        self.due = True
        return []

    def clear(self) -> None:
        """What was pending was taken."""
        self.since = None
        self.due = False

    def _arm(self, seconds: float) -> list[ArmTimer]:
        self._armed = True
        return [ArmTimer(self._timer, seconds)]
