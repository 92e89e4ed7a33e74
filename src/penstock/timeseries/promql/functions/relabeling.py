"""Functions of labels: label_replace, label_join, and the orders of sort."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.errors import InvalidInput
from penstock.timeseries.promql.columns.frame import VectorFrame, merged
from penstock.timeseries.promql.labels import METRIC_NAME, replace_each, values_of
from penstock.timeseries.promql.regex import anchored, substituted

__all__ = ["label_join", "label_replace", "sort_by_label", "sort_by_value"]

_DIGITS = re.compile(r"([0-9]+)")


def label_replace(frame: VectorFrame, target: str, replacement: str, source: str, pattern: str) -> VectorFrame:
    """Set a label from what a pattern finds in another; series whose label does not match stay as they are."""
    _check_label(target, "destination", "label_replace")
    compiled = _compiled(pattern)
    values = values_of(frame.labels, source)
    distinct = list(dict.fromkeys(values))
    # What each value of the source becomes; None where it does not match.
    known = dict(zip(distinct, substituted(compiled, replacement, distinct), strict=True))
    rows = [row for row, value in enumerate(values) if known[value] is not None]
    texts = [text for value in values if (text := known[value]) is not None]
    labels = list(frame.labels)
    for row, own in zip(rows, replace_each([labels[row] for row in rows], target, texts), strict=True):
        labels[row] = own
    unnamed = frame.unnamed.copy()
    unnamed[rows] &= target != METRIC_NAME
    return merged(dataclasses.replace(frame, labels=labels, unnamed=unnamed))


def label_join(frame: VectorFrame, target: str, separator: str, sources: list[str]) -> VectorFrame:
    """Set a label to the values of others, joined."""
    for label in sources:
        _check_label(label, "source", "label_join")
    _check_label(target, "destination", "label_join")
    columns = [values_of(frame.labels, source) for source in sources]
    texts = [separator.join(parts) for parts in zip(*columns, strict=True)] if columns else [""] * len(frame.labels)
    labels = replace_each(frame.labels, target, texts)
    unnamed = np.zeros_like(frame.unnamed) if target == METRIC_NAME else frame.unnamed
    return merged(dataclasses.replace(frame, labels=labels, unnamed=unnamed))


def sort_by_value(frame: VectorFrame, *, descending: bool) -> VectorFrame:
    """By the value at the only step; NaN comes last either way."""
    values = frame.values[:, 0]
    return frame.take(np.argsort(-values if descending else values, kind="stable"))


def sort_by_label(frame: VectorFrame, names: list[str], *, descending: bool) -> VectorFrame:
    """By label values in natural order, and by all labels where those are equal."""
    rows = sorted(range(len(frame.labels)), key=frame.labels.__getitem__)
    places = [_natural_places(values_of(frame.labels, name))[rows] for name in reversed(names)]
    order = np.array(rows, dtype=np.int64)
    order = order[np.lexsort(places)] if places else order
    return frame.take(order[::-1] if descending else order)


def _natural_places(values: list[str]) -> npt.NDArray[np.int64]:
    """Numbers that rise as the values do; values that are naturally equal share one."""
    keys = {value: _natural(value) for value in dict.fromkeys(values)}
    places = {key: place for place, key in enumerate(sorted(set(keys.values())))}
    numbers = {value: places[key] for value, key in keys.items()}
    return np.fromiter(map(numbers.__getitem__, values), np.int64, len(values))


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
