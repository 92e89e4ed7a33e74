"""Which upkeep a tenant needs next, for the keeper that does it in the pauses between writes."""

from __future__ import annotations

import math

from penstock.clock import Clock
from penstock.timeseries.config import TimeSeriesConfig
from penstock.timeseries.format.keys import BUCKET_MS
from penstock.timeseries.format.state import TenantState
from penstock.timeseries.operations import Expire, Fold, Operation, SampleChange, SeriesDelta
from penstock.timeseries.upkeep.expire import is_expired
from penstock.timeseries.upkeep.fold import due_periods

__all__ = ["TenantUpkeep", "retained_from"]


def retained_from(config: TimeSeriesConfig, now_ms: int) -> int | None:
    """The first hour that retention keeps; None if it keeps all."""
    if math.isinf(config.retention_seconds):
        return None
    return (now_ms - int(1000 * config.retention_seconds)) // BUCKET_MS


class TenantUpkeep:
    """Retention first, then folding, as the settings want them."""

    def __init__(self, config: TimeSeriesConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock

    def next_step(self, state: TenantState) -> SeriesDelta | None:
        """The write that does the next step; None if none is due."""
        operation = self._operation(state)
        return None if operation is None else SeriesDelta([SampleChange((operation,))])

    def _operation(self, state: TenantState) -> Operation | None:
        now_ms = self._clock.now_ms()
        before = retained_from(self._config, now_ms)
        if before is not None and is_expired(state, before):
            return Expire(state.name, before)
        return Fold(state.name) if due_periods(state, self._config, now_ms) else None

    def shape(self, state: TenantState) -> object:
        """What a step changes if it leads anywhere."""
        return {shelf: directory.fragments["serial"].tobytes() for shelf, directory in state.directories.items()}
