"""Figures of a tenant: what an operator looks for first when a store grows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyroaring

from penstock.blocks import BlockReader
from penstock.timeseries.format.keys import BUCKET_MS
from penstock.timeseries.format.sample_block import SampleBlock
from penstock.timeseries.format.state import LABELS, SAMPLES, TenantState
from penstock.timeseries.promql.labels import METRIC_NAME, text
from penstock.timeseries.read.labels import period_labels, present_series
from penstock.timeseries.read.matching import name_blocks

__all__ = ["TenantStats", "tenant_stats"]


@dataclass(frozen=True, slots=True)
class TenantStats:
    """Of one tenant. Cardinalities and the tops are those of its newest hour."""

    tenant: str
    hours: int = 0
    first_ms: int = 0
    end_ms: int = 0
    # As stored: samples that a later one replaces count until their hour is folded.
    samples: int = 0
    bytes: int = 0
    blocks: int = 0
    # Of the newest hour.
    series: int = 0
    # Distinct values by the name of a label, most first.
    label_values: dict[str, int] = field(default_factory=dict)
    # Series by metric, and by pair of label and value, most first.
    metrics: dict[str, int] = field(default_factory=dict)
    label_pairs: dict[str, int] = field(default_factory=dict)
    # Samples by series, most first.
    top_series: dict[str, int] = field(default_factory=dict)
    # Bytes by what they hold: samples, labels, index and so on, most first.
    kinds: dict[str, int] = field(default_factory=dict)

    @property
    def bytes_per_sample(self) -> float:
        return self.bytes / self.samples if self.samples else 0.0


async def tenant_stats(blocks: BlockReader, state: TenantState, top: int = 10) -> TenantStats:
    """Figures of a tenant, with so many entries of each kind."""
    hours = state.hours
    if not hours:
        return TenantStats(state.name)
    newest = hours[-1]
    period = state.period(newest)
    present = (await present_series(blocks, state, [newest]))[newest]
    values: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    for block in await name_blocks(blocks, state, period, None):
        for name in list(block.label_names()):
            for value in block.label_values(name):
                series = block.series(name, value) or pyroaring.BitMap()
                count = len(series) if present is None else series.intersection_cardinality(present)
                if count:
                    values[name] += 1
                    pairs[name, value] += count
    metrics = {value: count for (name, value), count in pairs.most_common() if name == METRIC_NAME}
    others = {f"{name}={value}": count for (name, value), count in pairs.most_common() if name != METRIC_NAME}
    return TenantStats(
        state.name,
        len(hours),
        hours[0] * BUCKET_MS,
        (newest + 1) * BUCKET_MS,
        int(state.directory(SAMPLES).rows.sum()),
        sum(directory.size_bytes for directory in state.directories.values()),
        sum(len(directory.fragments) for directory in state.directories.values()),
        state.rows(LABELS, period) if present is None else len(present),
        dict(values.most_common(top)),
        dict(list(metrics.items())[:top]),
        dict(list(others.items())[:top]),
        await _top_series(blocks, state, newest, top),
        _kinds(state),
    )


def _kinds(state: TenantState) -> dict[str, int]:
    sizes = {shelf.family.name.lower(): directory.size_bytes for shelf, directory in state.directories.items()}
    return dict(sorted(sizes.items(), key=lambda entry: -entry[1]))


async def _top_series(blocks: BlockReader, state: TenantState, hour: int, top: int) -> dict[str, int]:
    """The series of an hour that have most samples."""
    counts: Counter[int] = Counter()
    for low in state.lows(SAMPLES, hour).tolist():
        found = await blocks.contents(state, SAMPLES, [low], SampleBlock)
        for block in found.values():
            most = np.argsort(-np.diff(block.offsets), kind="stable")[:top]
            sizes = np.diff(block.offsets)[most]
            counts.update(dict(zip(block.ids[most].tolist(), sizes.tolist(), strict=True)))
    chosen = counts.most_common(top)
    ids = np.array(sorted(number for number, _ in chosen), np.uint32)
    known = (await period_labels(blocks, state, {state.period(hour): ids}))[state.period(hour)]
    texts = dict(zip(ids.tolist(), map(text, known.labels(np.arange(len(ids)))), strict=True))
    return {texts[number]: count for number, count in chosen}
