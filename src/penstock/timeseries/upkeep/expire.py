"""Removing hours: whole, without reading them, in the batch of one commit. What was removed stays away."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from penstock.blocks import Operations, page_operations
from penstock.observability import SILENT, Observer, names
from penstock.timeseries.format.keys import hour_of_key, period_hours
from penstock.timeseries.format.state import DICTIONARY, INDEX, LABELS, PRESENCE, SAMPLES, TenantState
from penstock.timeseries.format.store_format import FORMAT
from penstock.timeseries.write.draft import TenantDraft

__all__ = ["expire_hours", "is_expired", "mended_pages"]


def is_expired(state: TenantState, before_hour: int | None) -> bool:
    """Whether a tenant has hours before this one."""
    return before_hour is not None and bool(state.hours) and state.hours[0] < before_hour


def expire_hours(
    state: TenantState, before_hour: int | None, observer: Observer = SILENT
) -> tuple[TenantState, Operations]:
    """The state without all hours before this one, and the operations that make it so."""
    first = state.head.first_hour
    if before_hour is None or (not isinstance(first, msgspec.UnsetType) and first >= before_hour):
        return state, []
    head = msgspec.structs.replace(state.head, first_hour=before_hour)
    gone = [hour for hour in state.hours if hour < before_hour]
    draft = TenantDraft(state)
    for shelf in (DICTIONARY, LABELS, INDEX, SAMPLES, PRESENCE):
        for low in state.directory(shelf).lows.tolist():
            # Days go with their last hour.
            if period_hours(hour_of_key(low))[-1] < before_hour:
                draft.replace(shelf, low, None)
    if gone:
        observer.count(names.TIMESERIES_HOURS_EXPIRED, len(gone))
    resident = {period: prints for period, prints in state.resident.items() if period_hours(period)[-1] >= before_hour}
    present = {hour: ids for hour, ids in state.present.items() if hour >= before_hour}
    if not gone:
        # Nothing is there to remove: the mark is written with whatever is written next.
        return replace(state, head=head, resident=resident, present=present), []
    return draft.state_after(head, resident, present)


def mended_pages(state: TenantState) -> Operations:
    """The writes of directory pages that could not be read, as they were made again."""
    operations: Operations = []
    for shelf in state.lost:
        directory = state.directory(shelf)
        _, pages = directory.paged(np.copy(directory.pages))
        operations += page_operations(FORMAT, state.prefix, shelf, pages)
    return operations
