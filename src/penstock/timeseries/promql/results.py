"""Results of queries: scalar, string, vector or matrix, with annotations, as Arrow and as Prometheus' JSON."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.timeseries.promql.annotations import NO_ANNOTATIONS, Annotations
from penstock.timeseries.promql.labels import Labels
from penstock.timeseries.promql.source import SeriesColumns
from penstock.timeseries.promql.statistics import QueryStats
from penstock.timeseries.promql.syntax.number_text import general_text
from penstock.timeseries.promql.syntax.tree import ValueType

__all__ = ["MatrixResult", "QueryResult", "ScalarResult", "StringResult", "VectorResult"]

_LABELS = pa.map_(pa.string(), pa.string())
_SAMPLES = pa.schema([("labels", _LABELS), ("timestamp_ms", pa.int64()), ("value", pa.float64())])


class _Json:
    """The `data` of Prometheus' HTTP API, and the answer around it."""

    type: ClassVar[ValueType]
    annotations: Annotations

    def json_result(self) -> Any:
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "status": "success",
            "data": {"resultType": self.type.value, "result": self.json_result()},
        }
        if self.annotations.warnings:
            answer["warnings"] = list(self.annotations.warnings)
        if self.annotations.infos:
            answer["infos"] = list(self.annotations.infos)
        return answer


@dataclasses.dataclass(frozen=True)
class ScalarResult(_Json):
    """A number without labels."""

    timestamp_ms: int
    value: float
    annotations: Annotations = NO_ANNOTATIONS
    stats: QueryStats | None = dataclasses.field(default=None, compare=False, repr=False)
    type: ClassVar[ValueType] = ValueType.SCALAR

    def json_result(self) -> Any:
        return [self.timestamp_ms / 1000, general_text(self.value)]

    def to_arrow(self) -> pa.Table:
        return pa.table(
            {"timestamp_ms": [self.timestamp_ms], "value": [self.value]}, schema=_without_labels(pa.float64())
        )


@dataclasses.dataclass(frozen=True)
class StringResult(_Json):
    """A text."""

    timestamp_ms: int
    value: str
    annotations: Annotations = NO_ANNOTATIONS
    stats: QueryStats | None = dataclasses.field(default=None, compare=False, repr=False)
    type: ClassVar[ValueType] = ValueType.STRING

    def json_result(self) -> Any:
        return [self.timestamp_ms / 1000, self.value]

    def to_arrow(self) -> pa.Table:
        return pa.table(
            {"timestamp_ms": [self.timestamp_ms], "value": [self.value]}, schema=_without_labels(pa.string())
        )


@dataclasses.dataclass(frozen=True)
class VectorResult(_Json):
    """Series with one value each, at one time."""

    timestamp_ms: int
    labels: list[Labels]
    values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
    annotations: Annotations = NO_ANNOTATIONS
    stats: QueryStats | None = dataclasses.field(default=None, compare=False, repr=False)
    type: ClassVar[ValueType] = ValueType.VECTOR

    def json_result(self) -> Any:
        seconds = self.timestamp_ms / 1000
        return [
            {"metric": dict(labels), "value": [seconds, general_text(float(value))]}
            for labels, value in zip(self.labels, self.values, strict=True)
        ]

    def to_arrow(self) -> pa.Table:
        times = np.full(len(self.labels), self.timestamp_ms, dtype=np.int64)
        columns = [pa.array(self.labels, _LABELS), pa.array(times), pa.array(self.values)]
        return pa.Table.from_arrays(columns, schema=_SAMPLES)


@dataclasses.dataclass(frozen=True)
class MatrixResult(_Json):
    """Series with their samples over time."""

    columns: SeriesColumns
    annotations: Annotations = NO_ANNOTATIONS
    stats: QueryStats | None = dataclasses.field(default=None, compare=False, repr=False)
    type: ClassVar[ValueType] = ValueType.MATRIX

    def json_result(self) -> Any:
        return [
            {"metric": dict(labels), "values": self._json_samples(row)}
            for row, labels in enumerate(self.columns.labels)
        ]

    def _json_samples(self, row: int) -> list[list[float | str]]:
        low, high = self.columns.offsets[row], self.columns.offsets[row + 1]
        times, values = self.columns.timestamps[low:high], self.columns.values[low:high]
        return [[time / 1000, general_text(value)] for time, value in zip(times.tolist(), values.tolist(), strict=True)]

    def to_arrow(self) -> pa.Table:
        """A row for each series: its labels, and lists of times and values."""
        offsets = pa.array(self.columns.offsets, pa.int64())
        columns = [
            pa.array(self.columns.labels, _LABELS),
            pa.LargeListArray.from_arrays(offsets, pa.array(self.columns.timestamps)),
            pa.LargeListArray.from_arrays(offsets, pa.array(self.columns.values)),
        ]
        return pa.Table.from_arrays(columns, names=["labels", "timestamps_ms", "values"])


QueryResult: TypeAlias = ScalarResult | StringResult | VectorResult | MatrixResult


def _without_labels(value: pa.DataType) -> pa.Schema:
    return pa.schema([("timestamp_ms", pa.int64()), ("value", value)])
