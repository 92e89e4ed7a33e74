"""The bounds of a coordinator, each with the reason for its default. A contradiction is refused at once."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import InvalidInput

__all__ = ["CoordinatorConfig"]

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """When to flush, how much to hold, and how long to keep trying."""

    # The longest a write waits for a flush when nobody waits for it: what is written is searchable a second later.
    # Infinity turns the timer off.
    flush_interval_seconds: float = 1.0

    # The longest it waits for one once somebody waits for it. Those who begin to wait meanwhile share the flush, so
    # the number of flushes is bounded however many wait: no more than a person notices, several log writes of a bucket.
    # Infinity leaves flushes to `flush`, the timer and size.
    commit_delay_seconds: float = 0.05

    # One flush of this size is a few hundred blocks: large enough to be efficient, short enough to overlap.
    max_pending_bytes: int = 32 * _MIB

    # The same for writes too small for the byte bound to matter: a quarter of a second of them at full speed.
    max_pending_writes: int = 65_536

    # Accepted and not yet durable. Four flushes' worth: one filling, one being written, two becoming durable.
    max_buffered_bytes: int = 128 * _MIB

    # The depth of the queue, in the same proportion.
    max_buffered_writes: int = 262_144

    # Visible but not yet durable at one time. A store with 100 ms to durable needs two or three.
    max_unsettled_flushes: int = 8

    # How long transient errors are retried before every waiter is told: longer than a store's restart.
    retry_deadline_seconds: float = 60.0

    # Full jitter below a window that doubles from the first to the second.
    retry_pause_seconds: float = 0.1
    retry_pause_seconds_max: float = 5.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise InvalidInput(f"{name} = {getattr(self, name)!r}", "it must be more than zero")
        self._check_order("max_pending_bytes", "max_buffered_bytes")
        self._check_order("max_pending_writes", "max_buffered_writes")
        self._check_order("retry_pause_seconds", "retry_pause_seconds_max")

    def _check_order(self, lower: str, upper: str) -> None:
        if getattr(self, lower) > getattr(self, upper):
            raise InvalidInput(
                f"{lower} = {getattr(self, lower)!r}",
                f"it is over {upper} = {getattr(self, upper)!r}, so it would never be reached",
                "lower the first or raise the second",
            )
