"""The bounds of a coordinator, each with the reason for its default. A contradiction is refused at once."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import InvalidInput

__all__ = ["CoordinatorConfig"]

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """When to flush, how much to buffer, and how long to retry."""

    # Maximum time from a write to its flush when nobody waits for it, in seconds. Infinity turns the timer off.
    flush_interval_seconds: float = 1.0

    # Maximum time from a write to its flush when a caller waits for it (`durable()`, `flushed()`), in seconds.
    # Callers that start to wait meanwhile share the flush. Infinity leaves flushes to `flush`, the timer and
    # size.
    commit_delay_seconds: float = 0.05

    # Size that triggers a flush, in bytes. 32 MiB are a few hundred blocks: efficient, yet short enough to
    # overlap.
    max_pending_bytes: int = 32 * _MIB

    # Number of writes that triggers a flush, for writes too small to reach the size.
    max_pending_writes: int = 65_536

    # Maximum bytes accepted and not yet durable: four flushes, of which one fills, one is written and two become
    # durable.
    max_buffered_bytes: int = 128 * _MIB

    # Maximum writes accepted and not yet durable.
    max_buffered_writes: int = 262_144

    # Maximum flushes that are visible but not yet durable. A store that takes 100 ms to be durable needs two or
    # three.
    max_unsettled_flushes: int = 8

    # Time for which transient errors are retried before callers get the error, in seconds: longer than a store's
    # restart.
    retry_deadline_seconds: float = 60.0

    # First pause between two attempts of a flush, in seconds, with full jitter. It doubles up to the maximum.
    retry_pause_seconds: float = 0.1
    # Longest pause between two attempts of a flush, in seconds.
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
