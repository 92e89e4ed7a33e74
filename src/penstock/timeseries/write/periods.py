"""Which ids the samples of a flush get theirs from: those of their day, or of an hour that has its own.

Fingerprints of a period are read from the store unless they are in memory. If a day's labels cannot be read, hours of it
that have samples take no more; an hour that begins now becomes a period of its own, so that one damaged block does not
stop a day of writes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.blocks import BlockReader
from penstock.errors import AtCapacity, Corrupt
from penstock.timeseries.arrays import Ids
from penstock.timeseries.fingerprints import Fingerprints, fingerprints_of
from penstock.timeseries.format.keys import period_hours
from penstock.timeseries.format.series_block import FingerprintBlock, LabelBlock
from penstock.timeseries.format.state import DICTIONARY, LABELS, TenantState
from penstock.timeseries.offload import offload
from penstock.timeseries.write.gather import HourSamples

__all__ = ["DamagedHour", "TooManySeries", "known_fingerprints", "periods_of"]

Period = tuple[int, list[HourSamples], Fingerprints]


class DamagedHour(Corrupt):
    """An hour of a tenant lacks what a write to it needs."""

    hour = 0

    @classmethod
    def of(cls, tenant: str, hour: int, cause: Corrupt) -> DamagedHour:
        remedy = "restore the block, or remove the hour with `expire`"
        error = cls(f"hour {hour} of tenant {tenant} is damaged and takes no writes", str(cause), remedy)
        error.hour = hour
        return error


class TooManySeries(AtCapacity):
    """A day of a tenant has as many series as it may."""

    hours = range(0)
    # The series that it has, and how many more it may have.
    known = Fingerprints.concatenate([])
    room = 0

    @classmethod
    def of(cls, tenant: str, period: int, found: int, most: int, known: Fingerprints) -> TooManySeries:
        hours = period_hours(period)
        error = cls(
            f"the {'day' if len(hours) > 1 else 'hour'} from hour {hours[0]} of tenant {tenant} would have {found} series",
            f"at most {most} are allowed",
            "drop labels that differ for every sample, or raise bucket_series_max",
        )
        error.hours, error.known, error.room = hours, known, max(most - len(known), 0)
        return error


async def periods_of(blocks: BlockReader, state: TenantState, hours: Sequence[HourSamples]) -> list[Period]:
    """Samples by the period whose ids they get, with the fingerprints that it has already."""
    grouped: dict[int, list[HourSamples]] = {}
    for hour in hours:
        grouped.setdefault(state.period(hour.hour), []).append(hour)
    found: list[Period] = []
    for period, own in grouped.items():
        try:
            found.append((period, own, await known_fingerprints(blocks, state, period)))
        except Corrupt as error:
            begun = next((hour.hour for hour in own if state.has_series(hour.hour)), None)
            if begun is not None:
                raise DamagedHour.of(state.name, begun, error) from error
            found += [(hour.hour, [hour], Fingerprints.concatenate([])) for hour in own]
    return found


async def known_fingerprints(blocks: BlockReader, state: TenantState, period: int) -> Fingerprints:
    """The fingerprints of a period in the order of their ids, as the store has them."""
    known = state.resident.get(period)
    if known is not None:
        return known
    if len(period_hours(period)) == 1:
        return await _dictionary(blocks, state, period)
    parts = (await blocks.contents(state, LABELS, state.lows(LABELS, period).tolist(), LabelBlock)).values()
    _check_ids(state, period, [part.ids for part in parts], "labels")
    prints = [await offload(len(part), fingerprints_of, part.payloads) for part in parts]
    return Fingerprints.concatenate(prints)


async def _dictionary(blocks: BlockReader, state: TenantState, hour: int) -> Fingerprints:
    parts = (await blocks.contents(state, DICTIONARY, state.lows(DICTIONARY, hour).tolist(), FingerprintBlock)).values()
    _check_ids(state, hour, [part.ids for part in parts], "dictionary")
    return Fingerprints.concatenate([part.fingerprints for part in parts])


def _check_ids(state: TenantState, period: int, parts: Sequence[Ids], what: str) -> None:
    ids = np.concatenate([np.empty(0, np.uint32), *parts])
    if not np.array_equal(ids, np.arange(len(ids))):
        first = period_hours(period)[0]
        raise Corrupt(f"the {what} from hour {first} of tenant {state.name} on are inconsistent", "ids are missing")
