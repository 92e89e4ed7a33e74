"""How long to wait before trying again: full jitter in a window that follows what was seen.

Pure: it is told of conflicts and landings and answers with seconds; the register does the waiting.
"""

from __future__ import annotations

from penstock.ids import Entropy

__all__ = ["Contention"]


class Contention:
    """The pauses of one register."""

    def __init__(self, entropy: Entropy, *, pause_seconds_min: float, pause_seconds_max: float) -> None:
        self._entropy = entropy
        self._min = pause_seconds_min
        self._max = pause_seconds_max
        self._failures = 0
        self.attempts = 0
        self.conflicts = 0

    def landed(self) -> None:
        self._failures = 0
        self.attempts += 1

    def lost_to_another(self) -> None:
        self.attempts += 1
        self.conflicts += 1

    @property
    def rate(self) -> float:
        """Conflicts per attempt so far."""
        return self.conflicts / self.attempts if self.attempts else 0.0

    def pause(self) -> float:
        """Seconds to wait after one more failure."""
        window = min(self._max, self._min * 2.0**self._failures)
        self._failures = min(self._failures + 1, 16)
        return self._entropy.uniform(0.0, window)
