"""Names by the public mapping: units, totals, ratios, characters."""

from __future__ import annotations

import pytest

from penstock.telemetry import label_name, metric_name


@pytest.mark.parametrize(
    ("name", "unit", "type", "monotonic", "expected"),
    [
        ("http.server.duration", "ms", "histogram", False, "http_server_duration_milliseconds"),
        ("requests", "1", "sum", True, "requests_total"),
        ("requests_total", "", "sum", True, "requests_total"),
        ("total.requests", "", "sum", True, "requests_total"),
        ("queue.length", "{items}", "sum", False, "queue_length"),
        ("cpu.utilization", "1", "gauge", False, "cpu_utilization_ratio"),
        ("speed", "m/s", "gauge", False, "speed_meters_per_second"),
        ("memory.bytes", "By", "gauge", False, "memory_bytes"),
        ("io", "KiBy/h", "sum", True, "io_kibibytes_per_hour_total"),
        ("2xx", "", "gauge", False, "_2xx"),
        ("a..b--c", "", "gauge", False, "a_b_c"),
        ("käse", "", "gauge", False, "k_se"),
        ("fuel", "gal", "gauge", False, "fuel_gal"),
        ("temp", "Cel", "gauge", False, "temp_celsius"),
    ],
)
def test_a_metric_has_the_name_of_the_mapping(name: str, unit: str, type: str, monotonic: bool, expected: str) -> None:
    assert metric_name(name, unit, type, monotonic) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("http.method", "http_method"), ("1st", "key_1st"), ("_x", "key_x"), ("__x", "__x"), ("ok", "ok"), ("ü", "key_")],
)
def test_a_label_has_plain_characters(name: str, expected: str) -> None:
    assert label_name(name) == expected
