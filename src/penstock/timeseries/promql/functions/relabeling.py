"""Functions of labels: label_replace, label_join, and the orders of sort."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from typing import Any

import numpy as np

from penstock.errors import InvalidInput
from penstock.timeseries.promql.columns.frame import VectorFrame, merged
from penstock.timeseries.promql.labels import METRIC_NAME, Labels, replace, value_of
from penstock.timeseries.promql.regex import anchored, expand

__all__ = ["label_join", "label_replace", "sort_by_label", "sort_by_value"]

_DIGITS = re.compile(r"([0-9]+)")


def label_replace(frame: VectorFrame, target: str, replacement: str, source: str, pattern: str) -> VectorFrame:
    """Set a label from what a pattern finds in another; series whose label does not match stay as they are."""
    _check_label(target, "destination", "label_replace")
    compiled = _compiled(pattern)
    labels = list(frame.labels)
    unnamed = frame.unnamed.copy()
    # What each value of the source becomes; None where it does not match.
    known: dict[str, str | None] = {}
    for row, own in enumerate(frame.labels):
        value = value_of(own, source)
        if value not in known:
            match = compiled.fullmatch(value)
            known[value] = None if match is None else expand(replacement, match)
        if (text := known[value]) is not None:
            labels[row] = replace(own, target, text)
            unnamed[row] &= target != METRIC_NAME
    return merged(dataclasses.replace(frame, labels=labels, unnamed=unnamed))


def label_join(frame: VectorFrame, target: str, separator: str, sources: list[str]) -> VectorFrame:
    """Set a label to the values of others, joined."""
    for label in sources:
        _check_label(label, "source", "label_join")
    _check_label(target, "destination", "label_join")
    labels = [replace(own, target, separator.join(value_of(own, source) for source in sources)) for own in frame.labels]
    unnamed = np.zeros_like(frame.unnamed) if target == METRIC_NAME else frame.unnamed
    return merged(dataclasses.replace(frame, labels=labels, unnamed=unnamed))


def sort_by_value(frame: VectorFrame, *, descending: bool) -> VectorFrame:
    """By the value at the only step; NaN comes last either way."""

    def key(row: int) -> tuple[bool, float]:
        value = float(frame.values[row, 0])
        return math.isnan(value), 0.0 if math.isnan(value) else (-value if descending else value)

    return frame.take(sorted(range(len(frame.labels)), key=key))


def sort_by_label(frame: VectorFrame, names: list[str], *, descending: bool) -> VectorFrame:
    """By label values in natural order, and by all labels where those are equal."""

    def key(row: int) -> tuple[tuple[tuple[int, int, str], ...] | Labels, ...]:
        labels = frame.labels[row]
        return (*(_natural(value_of(labels, name)) for name in names), labels)

    return frame.take(sorted(range(len(frame.labels)), key=key, reverse=descending))


@functools.lru_cache(maxsize=4096)
def _natural(value: str) -> tuple[tuple[int, int, str], ...]:
    """Digits compare as numbers, of whatever length, and with other texts as the characters that they are."""
    return tuple(_natural_part(part) for part in _DIGITS.split(value) if part)


def _natural_part(part: str) -> tuple[int, int, str]:
    if part[0] in "0123456789":
        digits = part.lstrip("0")
        return 1, len(digits), digits
    return (0 if part < "0" else 2), 0, part


def _compiled(pattern: str) -> Any:
    try:
        return anchored(pattern)
    except InvalidInput as error:
        raise InvalidInput(f"invalid regular expression in label_replace(): {pattern}", error.why) from None


def _check_label(name: str, role: str, function: str) -> None:
    if not name:
        raise InvalidInput(f"invalid {role} label name in {function}(): {name}".rstrip(), "a label has a name")
