"""How long to go on with a store that fails: a deadline from the first error, and growing pauses. Pure."""

from __future__ import annotations

from penstock.coordinator.config import CoordinatorConfig

__all__ = ["FlushPatience"]


class FlushPatience:
    """The errors since something last became durable. Landing alone is no progress: it may never settle."""

    def __init__(self, config: CoordinatorConfig) -> None:
        self._config = config
        self._since: float | None = None
        self._failures = 0

    def count(self, now: float) -> bool:
        """Note an error; whether there is time for another attempt."""
        self._failures += 1
        if self._since is None:
            self._since = now
        return now - self._since < self._config.retry_deadline_seconds

    def reset(self) -> None:
        self._since, self._failures = None, 0

    @property
    def pause_seconds_max(self) -> float:
        """The window to draw the next pause from."""
        # The exponent is bounded so that a long outage cannot overflow a float.
        window = self._config.retry_pause_seconds * 2.0 ** min(self._failures - 1, 30)
        return min(self._config.retry_pause_seconds_max, window)
