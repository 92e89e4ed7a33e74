"""Metrics become series by the public mapping of OTLP to Prometheus."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.telemetry.samples import (
    NOW,
    SOURCE,
    every_kind_of_metric,
    first_write,
    metrics_scope,
    packed,
    set_attributes,
)

from penstock.records import Signal
from penstock.telemetry import (
    DeltaPolicy,
    ExponentialPolicy,
    SeriesConfig,
    SeriesSamples,
    decode_otlp,
    decode_remote_write,
    series_of,
)
from penstock.telemetry.columns.schemas import METRICS
from penstock.telemetry.series.exponential import classic_buckets

STALE_BITS = 0x7FF0000000000002
OWN = {"job": "checkout", "instance": "i-1"}


def test_every_kind_has_the_series_of_the_mapping() -> None:
    found = _samples(series_of(_metrics(every_kind_of_metric())))
    assert found[_key("http_requests_total", **OWN)] == float(2**62)
    buckets = {le: found[_key("http_duration_milliseconds_bucket", le=le, **OWN)] for le in ("1", "2.5", "+Inf")}
    assert buckets == {"1": 1.0, "2.5": 3.0, "+Inf": 6.0}
    assert found[_key("http_duration_milliseconds_sum", **OWN)] == 12.5
    assert found[_key("http_duration_milliseconds_count", **OWN)] == 6.0
    assert found[_key("rpc", quantile="0.99", **OWN)] == 7.0
    assert found[_key("rpc_count", **OWN)] == 2.0
    assert [value for key, value in found.items() if dict(key)["__name__"] == "cpu_load_ratio"] == [0.5]


def test_times_are_milliseconds_and_labels_cross_once_a_series() -> None:
    request, scope = metrics_scope()
    gauge = scope.metrics.add(name="g").gauge
    for number in range(1000):
        gauge.data_points.add(time_unix_nano=NOW + number * 10**9, as_int=number)
    found = series_of(_metrics(request))
    assert (len(found.labels), len(found)) == (1, 1000)
    assert found.time_ms.tolist() == [(NOW + number * 10**9) // 10**6 for number in range(1000)]
    assert found.series.dtype == np.uint32


def test_rows_of_prometheus_keep_their_names() -> None:
    write = first_write([({"__name__": "odd:name", "Le": "1"}, [(5, 2.0)])])
    found = series_of(decode_remote_write(packed(write), SOURCE).batch)
    assert _samples(found) == {_key("odd:name", Le="1"): 2.0}


def test_a_point_without_a_value_ends_its_series() -> None:
    request, scope = metrics_scope()
    scope.metrics.add(name="g").gauge.data_points.add(time_unix_nano=NOW, flags=1)
    histogram = scope.metrics.add(name="h").histogram
    histogram.aggregation_temporality = 2
    histogram.data_points.add(time_unix_nano=NOW, flags=1)
    found = series_of(_metrics(request))
    assert len(found) == 4
    assert set(found.value.view(np.uint64).tolist()) == {STALE_BITS}


def test_what_has_no_series_is_counted_with_the_reason() -> None:
    request = every_kind_of_metric()
    scope = request.resource_metrics[0].scope_metrics[0]
    delta = scope.metrics.add(name="d")
    delta.sum.aggregation_temporality = 1
    delta.sum.data_points.add(time_unix_nano=NOW, as_int=1)
    assert series_of(_metrics(request)).refused == {"exponential histogram": 1, "delta temporality": 1}
    both = SeriesConfig(delta=DeltaPolicy.ACCUMULATE, exponential=ExponentialPolicy.CLASSIC)
    found = series_of(_metrics(request), both)
    assert found.refused == {}
    marked = {dict(found.labels[int(number)].as_py())["__name__"] for number in found.series[found.is_delta]}
    assert marked == {"d"}
    values = _samples(found)
    assert [values[_key("sizes_bytes_bucket", le=le, **OWN)] for le in ("0", "4", "8", "+Inf")] == [1, 3, 6, 6]


@pytest.mark.parametrize(
    ("edge", "text"), [(float("nan"), "NaN"), (float("-inf"), "-Inf"), (-0.0, "0"), (1e300, "1e+300")]
)
def test_a_quantile_or_a_bound_that_is_no_usual_number_is_a_label_all_the_same(edge: float, text: str) -> None:
    """A job that failed on one would fail on it for ever: the batch has been acknowledged."""
    request, scope = metrics_scope()
    point = scope.metrics.add(name="rpc").summary.data_points.add(time_unix_nano=NOW, count=2, sum=1)
    point.quantile_values.add(quantile=edge, value=7)
    assert _samples(series_of(_metrics(request)))[_key("rpc", quantile=text, **OWN)] == 7.0
    request, scope = metrics_scope()
    times = scope.metrics.add(name="took")
    times.histogram.aggregation_temporality = 2
    point = times.histogram.data_points.add(time_unix_nano=NOW, count=3, sum=1)
    point.explicit_bounds.append(edge)
    point.bucket_counts.extend([1, 2])
    decoded = decode_otlp(Signal.METRICS, request.SerializeToString(), SOURCE)
    assert decoded.batch.num_rows + decoded.rejected == 1
    series_of(decoded.batch)


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "histogram", "count": 3, "bounds": [1.0, 2.0], "counts": [1]},
        {"type": "histogram", "count": 3, "bounds": [1.0], "counts": [1, None]},
        {"type": "histogram", "count": 3, "bounds": [None], "counts": [1, 2]},
        {"type": "histogram", "count": 3, "bounds": None, "counts": [1, 2]},
        {"type": "histogram", "count": None, "bounds": [1.0], "counts": [1, 2]},
        {"type": "summary", "count": 3, "quantiles": [None]},
        {"type": "summary", "count": 3, "quantiles": [{"quantile": None, "value": 1.0}]},
        {"type": "exponential_histogram", "count": 3, "scale": None, "positive_counts": [1]},
        {"type": "exponential_histogram", "count": None, "scale": 0, "positive_counts": [1]},
        {"type": "exponential_histogram", "count": 3, "scale": 0, "positive_counts": [None]},
        {"type": "exponential_histogram", "count": 3, "scale": -(2**31), "positive_counts": [1, 1]},
        {"type": "exponential_histogram", "count": 3, "scale": 2**31 - 1, "positive_counts": [1, 1]},
        {"type": "exponential_histogram", "count": 3, "scale": 2**31 - 1, "positive_counts": [2**63 - 1] * 2},
        {"type": "gauge", "value": 1.0, "labels": [("a", None), ("b", "c")], "resource": [("service.name", None)]},
        {"type": "never heard of"},
    ],
    ids=str,
)
def test_a_row_of_arrow_whose_parts_do_not_fit_leaves_the_others_alone(odd: dict[str, Any]) -> None:
    """Types allow what no decoder gives; mapped with its neighbours, it would take their numbers or fail them all."""
    usual = {"time": NOW, "metric": "took", "convention": "otlp", "type": "histogram"}
    good = {**usual, "count": 6, "sum": 9.0, "bounds": [1.0, 2.0], "counts": [1, 2, 3]}
    rows = [{**good, "metric": "before"}, {**usual, **odd}, {**good, "metric": "after"}]
    batch = pa.RecordBatch.from_pylist([{"tenant": "acme", **row} for row in rows], METRICS)
    for exponential in ExponentialPolicy:
        found = _samples(series_of(batch, SeriesConfig(exponential=exponential, target_info=False)))
        for name in ("before", "after"):
            buckets = {
                dict(key).get("le"): value for key, value in found.items() if dict(key)["__name__"] == f"{name}_bucket"
            }
            assert buckets == {"1": 1.0, "2": 3.0, "+Inf": 6.0}


def test_exponential_buckets_below_zero_come_first() -> None:
    row = {
        "time": 1,
        "metric": "m",
        "type": "exponential_histogram",
        "convention": "otlp",
        "scale": 0,
        "zero_count": 4,
        "zero_threshold": 0.5,
        "positive_offset": 0,
        "positive_counts": [1],
        "negative_offset": 0,
        "negative_counts": [2, 3],
    }
    bounds, _, counts, _ = classic_buckets(pa.RecordBatch.from_pylist([row], METRICS))
    assert bounds.tolist() == [-2.0, -1.0, 0.5, 2.0]
    assert counts.tolist() == [3, 2, 4, 1, 0]


def test_a_resource_has_one_target_info_with_its_other_attributes() -> None:
    request, scope = metrics_scope()
    set_attributes(request.resource_metrics[0].resource.attributes, **{"host.name": "h", "service.namespace": "shop"})
    scope.metrics.add(name="g").gauge.data_points.add(time_unix_nano=NOW, as_int=1)
    found = _samples(series_of(_metrics(request)))
    assert found[_key("target_info", job="shop/checkout", instance="i-1", host_name="h")] == 1.0
    without = _samples(series_of(_metrics(request), SeriesConfig(target_info=False)))
    assert _key("target_info", job="shop/checkout", instance="i-1", host_name="h") not in without


def test_labels_that_become_equal_are_joined() -> None:
    request, scope = metrics_scope()
    point = scope.metrics.add(name="g").gauge.data_points.add(time_unix_nano=NOW, as_int=1)
    set_attributes(point.attributes, **{"http.method": "GET", "http_method": "POST", "1st": "x"})
    found = _samples(series_of(_metrics(request)))
    assert _key("g", http_method="GET;POST", key_1st="x", **OWN) in found


def test_scopes_are_labels_when_asked_for() -> None:
    request, scope = metrics_scope()
    scope.metrics.add(name="g").gauge.data_points.add(time_unix_nano=NOW, as_int=1)
    found = _samples(series_of(_metrics(request), SeriesConfig(scope_labels=True)))
    assert _key("g", otel_scope_name="meter", **OWN) in found


def test_no_rows_have_no_series() -> None:
    found = series_of(pa.RecordBatch.from_pylist([], METRICS))
    assert (len(found), len(found.labels)) == (0, 0)


@pytest.mark.parametrize("seed", range(5))
def test_many_rows_have_the_series_that_a_loop_finds(seed: int) -> None:
    """Against a mapping written the slow way."""
    chance = np.random.default_rng(seed)
    series: dict[tuple[tuple[str, str], ...], list[tuple[int, float]]] = {}
    writes = []
    for _ in range(300):
        labels = {"__name__": f"m{chance.integers(3)}"}
        labels |= {f"l{n}": f"v{chance.integers(3)}" for n in range(chance.integers(4))}
        samples = [
            (int(time), float(chance.integers(100))) for time in chance.integers(0, 10**6, chance.integers(1, 4))
        ]
        writes.append((labels, samples))
        series.setdefault(_key(**labels), []).extend(samples)
    found = series_of(decode_remote_write(packed(first_write(writes)), SOURCE).batch)
    assert len(found.labels) == len(series)
    collected: dict[object, list[tuple[int, float]]] = {}
    for number, time, value in zip(found.series, found.time_ms, found.value, strict=True):
        key = tuple(sorted(found.labels[int(number)].as_py()))
        collected.setdefault(key, []).append((int(time), float(value)))
    assert collected == series


def _metrics(request: object) -> pa.RecordBatch:
    return decode_otlp(Signal.METRICS, request.SerializeToString(), SOURCE).batch  # type: ignore[attr-defined]


def _key(__name__: str, **labels: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({"__name__": __name__, **labels}.items()))


def _samples(found: SeriesSamples) -> dict[tuple[tuple[str, str], ...], float]:
    return {
        tuple(sorted(found.labels[int(number)].as_py())): float(value)
        for number, value in zip(found.series, found.value, strict=True)
    }
