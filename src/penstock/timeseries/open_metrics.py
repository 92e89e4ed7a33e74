"""OpenMetrics text as batches of samples, and samples as OpenMetrics text. The reader itself is telemetry's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from penstock.timeseries.metric_metadata import MetricMetadata
from penstock.timeseries.promql.labels import METRIC_NAME
from penstock.timeseries.promql.source import SeriesColumns, is_stale
from penstock.timeseries.promql.syntax.number_text import general_text
from penstock.timeseries.samples import SampleBatch

if TYPE_CHECKING:
    from penstock.telemetry import ExpositionBatch

__all__ = ["open_metrics_batch", "read_open_metrics", "write_open_metrics"]

_PLAIN_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_PLAIN_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_END: Final = "# EOF"
_BATCH_SAMPLES: Final = 100_000
_MILLISECOND_NS: Final = 1_000_000
_HALF_NS: Final = 500_000


def read_open_metrics(
    lines: Iterable[str], *, default_ms: int, seconds: bool = True, batch_samples: int = _BATCH_SAMPLES
) -> Iterator[SampleBatch]:
    """Batches of the samples in a text. `default_ms` is the time of those that have none; `seconds` the unit of others.

    The store keeps no exemplars: they are left out. `read_exposition` has them.
    """
    # Its room reads columns of all kinds, which asking a store does not need.
    from penstock.telemetry import read_exposition

    for batch in read_exposition(lines, seconds=seconds, batch_samples=batch_samples):
        yield open_metrics_batch(batch, default_ms=default_ms)


def open_metrics_batch(batch: ExpositionBatch, *, default_ms: int) -> SampleBatch:
    """Samples of a text as a batch of the store, to the millisecond."""
    times = [default_ms if time_ns is None else _milliseconds(time_ns) for time_ns in batch.times_ns]
    about = {name: MetricMetadata(family.type, family.help, family.unit) for name, family in batch.families.items()}
    return SampleBatch.of(batch.labels, batch.series, times, batch.values, about)


def _milliseconds(time_ns: int) -> int:
    return (time_ns + _HALF_NS) // _MILLISECOND_NS


def write_open_metrics(columns: SeriesColumns, about: Mapping[str, MetricMetadata] | None = None) -> Iterator[str]:
    """Lines without their ends. Staleness markers have no text of their own and are left out."""
    from penstock.telemetry import family_of

    families = about or {}
    told: set[str] = set()
    stale = is_stale(columns.values)
    for row, labels in enumerate(columns.labels):
        pairs = dict(labels)
        name = pairs.pop(METRIC_NAME, "")
        family = family_of(name, families)
        if family is not None and family not in told:
            told.add(family)
            yield from _described(family, families[family])
        series = _series_text(name, pairs)
        for at in range(columns.offsets[row], columns.offsets[row + 1]):
            if not stale[at]:
                value = general_text(float(columns.values[at]))
                yield f"{series} {value} {_seconds(int(columns.timestamps[at]))}"
    yield _END


def _described(family: str, about: MetricMetadata) -> Iterator[str]:
    name = family if _PLAIN_NAME.fullmatch(family) else _quoted(family)
    if about.type:
        yield f"# TYPE {name} {about.type}"
    if about.unit:
        yield f"# UNIT {name} {about.unit}"
    if about.help:
        escaped = about.help.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        yield f"# HELP {name} {escaped}"


def _series_text(name: str, labels: Mapping[str, str]) -> str:
    pairs = [
        f"{key if _PLAIN_LABEL.fullmatch(key) else _quoted(key)}={_quoted(value)}" for key, value in labels.items()
    ]
    if _PLAIN_NAME.fullmatch(name):
        return f"{name}{{{','.join(pairs)}}}" if pairs else name
    return f"{{{','.join([_quoted(name), *pairs])}}}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return f'"{escaped}"'


def _seconds(time_ms: int) -> str:
    sign, size = ("-", -time_ms) if time_ms < 0 else ("", time_ms)
    whole, rest = divmod(size, 1000)
    return f"{sign}{whole}.{rest:03d}" if rest else f"{sign}{whole}"
