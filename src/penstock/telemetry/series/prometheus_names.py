"""Names of OTLP in the form that Prometheus has: metrics with unit and type, labels of plain characters.

The public mapping "OTLP metric points to Prometheus" of the OpenTelemetry specification, with underscores in the
place of characters that are not allowed, unit and `_total` suffixes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

__all__ = ["label_name", "metric_name"]

_NOT_IN_METRIC: Final = re.compile(r"[^a-zA-Z0-9:]+")
_NOT_IN_LABEL: Final = re.compile(r"[^a-zA-Z0-9_]")
_UNITS: Final = {
    "d": "days",
    "h": "hours",
    "min": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "By": "bytes",
    "KiBy": "kibibytes",
    "MiBy": "mebibytes",
    "GiBy": "gibibytes",
    "TiBy": "tibibytes",
    "KBy": "kilobytes",
    "MBy": "megabytes",
    "GBy": "gigabytes",
    "TBy": "terabytes",
    "m": "meters",
    "V": "volts",
    "A": "amperes",
    "J": "joules",
    "W": "watts",
    "g": "grams",
    "Cel": "celsius",
    "Hz": "hertz",
    "1": "",
    "%": "percent",
}
_PER_UNITS: Final = {
    "s": "second",
    "m": "minute",
    "min": "minute",
    "h": "hour",
    "d": "day",
    "w": "week",
    "mo": "month",
    "y": "year",
}


@lru_cache(maxsize=65_536)
def metric_name(name: str, unit: str, type: str, monotonic: bool) -> str:
    """`http.server.duration` in `ms` becomes `http_server_duration_milliseconds`; a counter ends with `_total`."""
    words = [word for word in _NOT_IN_METRIC.sub("_", name).split("_") if word]
    for word in _unit_words(unit):
        if word not in words:
            words.append(word)
    is_counter = type == "sum" and monotonic
    if is_counter:
        words = [*(word for word in words if word != "total"), "total"]
    if unit == "1" and type == "gauge":
        words = [*(word for word in words if word != "ratio"), "ratio"]
    found = "_".join(words)
    return f"_{found}" if found[:1].isdigit() else found


@lru_cache(maxsize=65_536)
def label_name(name: str) -> str:
    """`http.method` becomes `http_method`; a digit in front gets `key_` before it."""
    found = _NOT_IN_LABEL.sub("_", name)
    if found[:1].isdigit():
        return f"key_{found}"
    # A single underscore in front would be private; two are reserved, and kept.
    return f"key{found}" if found.startswith("_") and not found.startswith("__") else found


def _unit_words(unit: str) -> list[str]:
    # Annotations in braces say what is counted, and are no unit.
    plain = re.sub(r"\{[^}]*\}", "", unit).strip()
    main, slash, per = plain.partition("/")
    words = [_word(_UNITS.get(main.strip(), main.strip()))]
    if slash and per.strip():
        words += ["per", _word(_PER_UNITS.get(per.strip(), per.strip()))]
    return [word for word in words if word]


def _word(text: str) -> str:
    return "_".join(word for word in _NOT_IN_METRIC.sub("_", text).split("_") if word)
