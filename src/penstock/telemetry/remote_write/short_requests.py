"""Short requests of remote write 1.0 as rows, walked in Python: the rows of the decoder in bulk, for a fraction of the work.

Only series with labels and samples are known here. Anything else, and everything that must be refused, is `Uncommon`,
and the decoder in bulk decides about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.telemetry.columns.few_rows import Entries, FewRows, Uncommon
from penstock.telemetry.columns.rows import DecodedRows, RowSource
from penstock.telemetry.columns.schemas import METRICS, PROMETHEUS
from penstock.telemetry.wire.limits import DecodeLimits

__all__ = ["short_write_rows"]

_NAME: Final = "__name__"
_MS: Final = 1_000_000
_MS_MAX: Final = (2**63 - 1) // _MS


def short_write_rows(requests: Sequence[Any], source: RowSource, limits: DecodeLimits) -> DecodedRows:
    """Rows of requests that are parsed; `Uncommon` where one holds anything out of the ordinary."""
    rows, count = FewRows(), 0
    labels, times, values = rows.maps("labels", ""), rows.column("time"), rows.column("value")
    for request in requests:
        if request.metadata:
            raise Uncommon
        for series in request.timeseries:
            if series.exemplars or series.histograms:
                raise Uncommon
            name, entries = _labels(series.labels, limits)
            samples = series.samples
            for sample in samples:
                time = sample.timestamp
                if not -_MS_MAX <= time <= _MS_MAX:
                    raise Uncommon
                times.append(time * _MS)
                values.append(sample.value)
            labels.add(entries, len(samples))
            rows.column("metric").extend([name] * len(samples))
    count = len(times)
    if not count:
        raise Uncommon
    rows.repeat(count, type="unknown", convention=PROMETHEUS)
    return DecodedRows(rows.assembled(METRICS, count, source))


def _labels(pairs: Any, limits: DecodeLimits) -> tuple[str, Entries]:
    """The name of a series and its other labels, which must be in order, as Prometheus sends them."""
    if len(pairs) > limits.attributes_max:
        raise Uncommon
    name, before = "", ""
    keys, values = [], []
    for pair in pairs:
        key, value = pair.name, pair.value
        if not value or key <= before:
            raise Uncommon
        before = key
        if key == _NAME:
            name = value
        else:
            keys.append(key)
            values.append(value)
    if not name:
        raise Uncommon
    return name, (keys, values, [0] * len(keys))
