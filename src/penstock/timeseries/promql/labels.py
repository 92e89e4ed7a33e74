"""Label sets: sorted pairs of names and values, so that equal sets are equal tuples and can be keys.

An empty value is the same as an absent label, so a set never holds one.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TypeAlias

import xxhash

__all__ = [
    "EMPTY_LABELS",
    "METRIC_NAME",
    "Labels",
    "drop",
    "drop_metadata",
    "fraction",
    "keep",
    "labels_from",
    "metric_names",
    "projected",
    "replace",
    "replace_each",
    "set_text",
    "signature",
    "signatures",
    "text",
    "value_of",
    "values_of",
    "without_metadata",
]

Labels: TypeAlias = tuple[tuple[str, str], ...]

METRIC_NAME = "__name__"
# What operators and functions that change the meaning of a value take away.
_METADATA = frozenset({METRIC_NAME, "__type__", "__unit__"})
EMPTY_LABELS: Labels = ()
_NAME = itemgetter(0)  # of a pair
# Beyond these, the iterators over all rows no longer stay within a processor's cache.
_COLUMNS_SERIES_MAX = 4096
_LONG = 255  # lengths from here on take four bytes in a hash


def labels_from(pairs: Mapping[str, str]) -> Labels:
    return tuple(sorted((name, value) for name, value in pairs.items() if value))


def value_of(labels: Labels, name: str) -> str:
    for own, value in labels:
        if own == name:
            return value
    return ""


def values_of(series: Iterable[Labels], name: str) -> list[str]:
    """The value of one label in each series."""
    return [value_of(labels, name) for labels in series]


def drop(labels: Labels, names: Iterable[str]) -> Labels:
    gone = frozenset(names)
    return tuple([pair for pair in labels if pair[0] not in gone])


def keep(labels: Labels, names: Iterable[str]) -> Labels:
    kept = frozenset(names)
    return tuple([pair for pair in labels if pair[0] in kept])


def metric_names(series: Iterable[Labels]) -> list[str]:
    """The names of metrics, each once, as they first stand; series without a name have none."""
    # Usually the name is the first label: capital letters alone stand before it.
    found = dict.fromkeys(
        labels[0][1] if labels and labels[0][0] == METRIC_NAME else value_of(labels, METRIC_NAME) for labels in series
    )
    return [name for name in found if name]


def replace(labels: Labels, name: str, value: str) -> Labels:
    """With this value for a label; an empty one takes the label away."""
    pairs = [pair for pair in labels if pair[0] != name]
    if value:
        insort(pairs, (name, value))
    return tuple(pairs)


def replace_each(series: Iterable[Labels], name: str, values: Iterable[str]) -> list[Labels]:
    """The series with a value each for one label."""
    return [replace(labels, name, value) for labels, value in zip(series, values, strict=True)]


def drop_metadata(labels: Labels) -> Labels:
    """Without the metric's name, type and unit."""
    return tuple([pair for pair in labels if pair[0] not in _METADATA])


def signature(names: Iterable[str], *, on: bool) -> Callable[[Labels], Labels]:
    """The part of a label set that decides which series match."""
    chosen = frozenset(names)
    if on:
        # A list is made in a third of the time that a generator takes.
        return lambda labels: tuple([pair for pair in labels if pair[0] in chosen])
    ignored = chosen | {METRIC_NAME}
    return lambda labels: tuple([pair for pair in labels if pair[0] not in ignored])


def signatures(series: Sequence[Labels], names: Iterable[str], *, on: bool) -> list[Labels]:
    """The same of many label sets."""
    return projected(series, names if on else (*names, METRIC_NAME), kept=on)


def without_metadata(series: Sequence[Labels]) -> list[Labels]:
    """Many label sets without the metric's name, type and unit."""
    return projected(series, _METADATA, kept=False)


def projected(series: Sequence[Labels], names: Iterable[str], *, kept: bool) -> list[Labels]:
    """Of each label set the labels with these names, or all others."""
    chosen = frozenset(names)
    columns = _columns(series)
    if columns is None:
        return [tuple([pair for pair in labels if (pair[0] in chosen) is kept]) for labels in series]
    left = [column for column in columns if (column[0][0] in chosen) is kept]
    if len(left) == len(columns):
        return list(series)
    return list(zip(*left, strict=True)) if left else [EMPTY_LABELS] * len(series)


def _columns(series: Sequence[Labels]) -> list[tuple[tuple[str, str], ...]] | None:
    """Label by label, if all series have the same names; of very many, row by row is faster."""
    if len(series) > _COLUMNS_SERIES_MAX or len(set(map(len, series))) != 1:
        return None
    columns = list(zip(*series, strict=True))
    return columns if all(len(set(map(_NAME, column))) == 1 for column in columns) else None


def text(labels: Labels) -> str:
    """As Prometheus writes a series."""
    name = value_of(labels, METRIC_NAME)
    rest = ", ".join(f"{key}={_quoted(value)}" for key, value in labels if key != METRIC_NAME)
    return f"{name}{{{rest}}}" if rest or not name else name


def set_text(labels: Labels) -> str:
    """As Prometheus writes a set of labels, the name among them."""
    return "{" + ", ".join(f"{key}={_quoted(value)}" for key, value in labels) + "}"


def fraction(labels: Labels) -> float:
    """Where a series falls between 0 and 1: the hash that Prometheus' `limit_ratio` samples by."""
    data = b"".join(_sized(part.encode()) for pair in labels for part in pair)
    return xxhash.xxh64_intdigest(data) / (2**64 - 1)


def _sized(part: bytes) -> bytes:
    size = len(part)
    return (bytes([size]) if size < _LONG else b"\xff" + size.to_bytes(3, "little")) + part


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
