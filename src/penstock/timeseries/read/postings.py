"""Which series of each hour satisfy matchers, kept for the next query: an hour's series change only when it gets new ones."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.blocks import BlockReader
from penstock.errors import AtCapacity
from penstock.timeseries.arrays import Ids, Indices
from penstock.timeseries.fingerprints import FINGERPRINT_BYTES, Fingerprints
from penstock.timeseries.format.state import TenantState
from penstock.timeseries.promql.labels import Labels
from penstock.timeseries.read.labels import fingerprints_at
from penstock.timeseries.read.matching import LabelTest, matching_ids

__all__ = ["Postings", "SelectedSeries", "check_bound", "find_postings", "series_name"]

# Hours whose index is read in one go: what a query over years holds in memory at once.
_HOURS_AT_ONCE: Final = 48
# Memory of an entry beside its arrays, and of the labels of a series, about.
_ENTRY_BYTES: Final = 512
_LABELS_BYTES: Final = 600


@dataclass(frozen=True, slots=True)
class Postings:
    """The series of an hour that satisfy matchers."""

    ids: Ids
    fingerprints: Fingerprints

    @property
    def size_bytes(self) -> int:
        return _ENTRY_BYTES + (4 + FINGERPRINT_BYTES) * len(self.ids)


@dataclass(frozen=True, slots=True)
class SelectedSeries:
    """The series of some hours, each once, in the order of labels; and for each hour its ids and their numbers."""

    labels: list[Labels]
    hours: Mapping[int, tuple[Ids, Indices]]

    @property
    def size_bytes(self) -> int:
        arrays = sum(ids.nbytes + numbers.nbytes for ids, numbers in self.hours.values())
        return _ENTRY_BYTES * (1 + len(self.hours)) + arrays + _LABELS_BYTES * len(self.labels)


def series_name(state: TenantState, hours: Sequence[int], tests: Sequence[LabelTest]) -> Hashable:
    """What found series are kept under: it changes when one of the hours gets new ones."""
    versions = state.series_versions
    return state.prefix, tuple((hour, versions.get(hour)) for hour in hours), tuple(test.matcher for test in tests)


async def find_postings(
    blocks: BlockReader, state: TenantState, hours: Sequence[int], tests: Sequence[LabelTest], series_max: int
) -> dict[int, Postings]:
    """For each hour the series that satisfy all matchers."""
    found: dict[int, Postings] = {}
    missing: list[int] = []
    for hour in hours:
        entry = blocks.cache.get((series_name(state, [hour], tests), Postings), Postings)
        if entry is None or entry.block is None:
            missing.append(hour)
        else:
            found[hour] = entry.block
    for first in range(0, len(missing), _HOURS_AT_ONCE):
        ids = await matching_ids(blocks, state, missing[first : first + _HOURS_AT_ONCE], tests)
        for own in ids.values():
            check_bound("series", len(own), series_max)
        for hour, prints in (await fingerprints_at(blocks, state, ids)).items():
            found[hour] = Postings(ids[hour], prints)
            blocks.cache.put((series_name(state, [hour], tests), Postings), found[hour])
    return found


def check_bound(what: str, found: int, most: int) -> None:
    """Refuse a query that selects more than it may."""
    if found > most:
        raise AtCapacity(
            f"the query selects too many {what}",
            f"it found {found} so far, and may read {most}",
            f"select fewer, or raise engine.{what}_max",
        )
