"""Type, help and unit of a metric are told under the name that its series have."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.telemetry import METRICS, MetricDescription, descriptions_of

TIME = 1_763_000_000_000_000_000


def rows(*metrics: dict[str, Any]) -> pa.Table:
    shared = {"tenant": "acme", "time": TIME, "convention": "otlp"}
    return pa.Table.from_pylist([{**shared, **metric} for metric in metrics], METRICS)


def test_metrics_of_otlp_have_the_names_and_types_of_their_series() -> None:
    found = descriptions_of(
        rows(
            {"metric": "http.requests", "type": "sum", "monotonic": True, "description": "Requests.", "unit": "1"},
            {"metric": "queue.size", "type": "sum", "monotonic": False},
            {"metric": "http.duration", "type": "exponential_histogram", "unit": "ms", "description": "Time."},
        )
    )
    assert found == {
        "http_requests_total": MetricDescription("counter", "Requests.", "1"),
        "queue_size": MetricDescription("gauge", "", ""),
        "http_duration_milliseconds": MetricDescription("histogram", "Time.", "ms"),
    }


def test_samples_of_prometheus_are_told_under_their_family_once() -> None:
    shared = {"type": "histogram", "convention": "prometheus", "description": "Time."}
    found = descriptions_of(
        rows(*({"metric": f"request_seconds{part}", **shared} for part in ("_bucket", "_sum", "_count", "_bucket")))
    )
    assert found == {"request_seconds": MetricDescription("histogram", "Time.", "")}


def test_the_first_description_of_a_name_counts_and_no_rows_have_none() -> None:
    twice = rows(
        {"metric": "up", "type": "gauge", "description": "first"}, {"metric": "up", "type": "gauge", "description": "x"}
    )
    assert descriptions_of(twice)["up"].help == "first"
    assert descriptions_of(rows()) == {}
