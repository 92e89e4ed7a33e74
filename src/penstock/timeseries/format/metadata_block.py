"""Blocks of what metrics are: type, help and unit by the name of a metric. Of several rows of a name the last counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from penstock.blocks import BlockBody
from penstock.errors import Corrupt
from penstock.timeseries.arrays import Cut, Words
from penstock.timeseries.format.keys import metric_key
from penstock.timeseries.metric_metadata import MetricMetadata
from penstock.undecodable import UNDECODABLE

__all__ = ["MetadataBlock"]


class _Row(msgspec.Struct, array_like=True, frozen=True):
    name: str
    type: str
    help: str
    unit: str


@dataclass(frozen=True)
class MetadataBlock:
    """Metrics by name: a JSON array of [name, type, help, unit]; packed with zstd."""

    rows: tuple[_Row, ...]

    @classmethod
    def of(cls, metrics: dict[str, MetricMetadata]) -> MetadataBlock:
        return cls(tuple(_Row(name, about.type, about.help, about.unit) for name, about in sorted(metrics.items())))

    @cached_property
    def metrics(self) -> dict[str, MetricMetadata]:
        return {row.name: MetricMetadata(row.type, row.help, row.unit) for row in self.rows}

    @cached_property
    def size_bytes(self) -> int:
        return sum(128 + len(row.name) + len(row.help) for row in self.rows)

    @cached_property
    def keys(self) -> Words:
        return np.array([metric_key(row.name) for row in self.rows], np.uint64)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Cut) -> MetadataBlock:
        return MetadataBlock(tuple(self.rows[place] for place in np.arange(len(self))[rows].tolist()))

    def encode(self) -> BlockBody:
        return BlockBody((msgspec.json.encode(self.rows),), compress=True)

    @classmethod
    def decode(cls, body: memoryview) -> MetadataBlock:
        try:
            return cls(msgspec.json.decode(body, type=tuple[_Row, ...]))
        except UNDECODABLE as error:
            raise Corrupt("a block of metadata cannot be read", str(error)) from error

    @classmethod
    def merge(cls, parts: Sequence[MetadataBlock]) -> MetadataBlock:
        if len(parts) == 1:
            return parts[0]
        return cls.of({name: about for part in parts for name, about in part.metrics.items()})
