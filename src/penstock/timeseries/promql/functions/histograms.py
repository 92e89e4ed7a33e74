"""Functions of classic histograms: series that count observations up to the bound in their label `le`."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from penstock.timeseries.promql.columns.frame import Cells, Presence, VectorFrame, empty_frame, merged
from penstock.timeseries.promql.context import EvaluationContext
from penstock.timeseries.promql.functions.buckets import bucket_fraction, bucket_quantile
from penstock.timeseries.promql.labels import METRIC_NAME, Labels, drop, replace, value_of
from penstock.timeseries.promql.syntax.number_text import go_text, open_metrics_text
from penstock.timeseries.promql.syntax.tree import TextSpan

__all__ = ["histogram_fraction", "histogram_quantile", "histogram_quantiles", "warn_of_quantiles"]

Index = npt.NDArray[np.intp]

_BOUND = "le"
# Of these, Go reads only those with an exponent.
_HEXADECIMAL = re.compile(r"[+-]?0[xX][0-9a-fA-F.]+[pP]")
# Buckets and steps that are computed at once: a dozen arrays of so many numbers stay within a processor's cache.
_CELLS_AT_ONCE = 1 << 15


@dataclasses.dataclass(frozen=True)
class _ClassicHistograms:
    """Histograms of the same bounds, which rise. Their steps stand side by side (buckets × histograms and steps)."""

    # Where each stands in the result, and what it is called there.
    numbers: list[int]
    labels: list[Labels]
    bounds: Cells
    counts: Cells
    present: Presence


def warn_of_quantiles(q: Cells, context: EvaluationContext, place: TextSpan) -> None:
    """One warning for each value that no quantile can have."""
    wrong = np.isnan(q) | (q < 0) | (q > 1)
    for value in np.unique(q[wrong]):
        context.notes.warn(f"quantile value should be between 0 and 1, got {go_text(float(value))}", place)


def histogram_quantile(q: Cells, frame: VectorFrame, context: EvaluationContext, place: TextSpan) -> VectorFrame:
    def quantile(some: _ClassicHistograms, cells: Index, rows: Index) -> Cells:
        asked = q[cells % frame.steps]
        found, lifted = bucket_quantile(asked, some.bounds[rows], some.counts[np.ix_(rows, cells)])
        for number in np.unique(cells[lifted] // frame.steps).tolist():
            name = value_of(some.labels[number], METRIC_NAME)
            context.notes.inform(
                "input to histogram_quantile needed to be fixed for monotonicity (see https://prometheus.io/docs/"
                "prometheus/latest/querying/functions/#histogram_quantile)"
                + (f' for metric name "{name}"' if name else ""),
                place,
            )
        return found

    return _each(frame, context, place, quantile)


def histogram_quantiles(
    label: str, quantiles: list[Cells], frame: VectorFrame, context: EvaluationContext, place: TextSpan
) -> VectorFrame:
    """One series for each quantile, named in a label: one that varies is another series where it has another value."""
    parts: list[VectorFrame] = []
    for q in quantiles:
        found = histogram_quantile(q, frame, context, place)
        distinct, numbers = np.unique(q, return_inverse=True)
        context.budget.check_cells(len(distinct) * len(found.labels), frame.steps)
        for number, value in enumerate(distinct.tolist()):
            named = [replace(labels, label, open_metrics_text(value)) for labels in found.labels]
            asked = found.present & (numbers.ravel() == number)
            parts.append(dataclasses.replace(found, labels=named, present=asked).without_empty())
    return merged(_stacked(parts))


def _stacked(parts: list[VectorFrame]) -> VectorFrame:
    return VectorFrame(
        [labels for part in parts for labels in part.labels],
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.present for part in parts]),
        np.concatenate([part.unnamed for part in parts]),
    )


def histogram_fraction(
    lower: Cells, upper: Cells, frame: VectorFrame, context: EvaluationContext, place: TextSpan
) -> VectorFrame:
    def share(some: _ClassicHistograms, cells: Index, rows: Index) -> Cells:
        steps = cells % frame.steps
        return bucket_fraction(lower[steps], upper[steps], some.bounds[rows], some.counts[np.ix_(rows, cells)])

    return _each(frame, context, place, share)


def _each(
    frame: VectorFrame,
    context: EvaluationContext,
    place: TextSpan,
    function: Callable[[_ClassicHistograms, Index, Index], Cells],
) -> VectorFrame:
    """A value for each histogram and step; those with the same buckets are computed together."""
    members = _members(frame, context, place)
    if not members:
        return empty_frame(frame.steps)
    values = np.zeros((len(members), frame.steps))
    present = np.zeros(values.shape, np.bool_)
    for some in _alike(frame, members):
        context.budget.check_time()
        found = np.zeros(some.counts.shape[1])
        for rows, cells in _patterns(some.present):
            found[cells] = function(some, cells, rows)
        values[some.numbers] = found.reshape(-1, frame.steps)
        present[some.numbers] = some.present.any(axis=0).reshape(-1, frame.steps)
    return VectorFrame(list(members), values, present, np.ones(len(members), np.bool_))


def _patterns(present: Presence) -> Iterator[tuple[Index, Index]]:
    """Sets of buckets that exist together, and the cells in which they do."""
    whole = present.all(axis=0)
    yield np.arange(len(present)), np.flatnonzero(whole)
    partial = np.flatnonzero(present.any(axis=0) & ~whole)
    if not len(partial):
        return
    patterns, owner = np.unique(present[:, partial], axis=1, return_inverse=True)
    for number in range(patterns.shape[1]):
        yield np.flatnonzero(patterns[:, number]), partial[owner.ravel() == number]


def _members(frame: VectorFrame, context: EvaluationContext, place: TextSpan) -> dict[Labels, dict[float, list[int]]]:
    """The histograms by their labels: the rows of each bound, of which there are several if it is spelled in several ways."""
    members: dict[Labels, dict[float, list[int]]] = {}
    for row in np.flatnonzero(frame.seen()).tolist():
        labels = frame.labels[row]
        text = value_of(labels, _BOUND)
        bound = _parsed(text)
        if bound is None:
            name = value_of(labels, METRIC_NAME)
            suffix = f' for metric name "{name}"' if name else ""
            context.notes.warn(f'bucket label "le" is missing or has a malformed value of "{text}"{suffix}', place)
            continue
        members.setdefault(drop(labels, (_BOUND,)), {}).setdefault(bound, []).append(row)
    return members


def _alike(frame: VectorFrame, members: dict[Labels, dict[float, list[int]]]) -> Iterator[_ClassicHistograms]:
    """Histograms of the same bounds, a few at a time."""
    labels = list(members)
    alike: dict[tuple[tuple[float, int], ...], list[int]] = {}
    for number, own in enumerate(labels):
        spelled = sorted((bound, len(rows)) for bound, rows in members[own].items())
        alike.setdefault(tuple(spelled), []).append(number)
    for buckets, numbers in alike.items():
        height = max(1, _CELLS_AT_ONCE // (len(buckets) * max(1, frame.steps)))
        for first in range(0, len(numbers), height):
            some = numbers[first : first + height]
            rows = [[members[labels[number]][bound] for bound, _ in buckets] for number in some]
            yield _together(frame, some, [labels[number] for number in some], [bound for bound, _ in buckets], rows)


def _together(
    frame: VectorFrame, numbers: list[int], labels: list[Labels], bounds: list[float], rows: list[list[list[int]]]
) -> _ClassicHistograms:
    # Two spellings of one bound are one bucket.
    shape = (len(bounds), len(numbers) * frame.steps)
    counts, present = np.empty(shape), np.empty(shape, np.bool_)
    for bucket in range(len(bounds)):
        own = np.array([of_histogram[bucket] for of_histogram in rows])
        shown = frame.present[own]
        counts[bucket] = np.where(shown, frame.values[own], 0.0).sum(axis=1).ravel()
        present[bucket] = shown.any(axis=1).ravel()
    return _ClassicHistograms(numbers, labels, np.array(bounds), counts, present)


def _parsed(text: str) -> float | None:
    if not text.isascii() or text != text.strip() or "_" in text:
        return None
    try:
        bound = float.fromhex(text) if _HEXADECIMAL.match(text) else float(text)
    except (ValueError, OverflowError):
        return None
    # A number too large for a float is no bound; infinity is spelled out.
    return None if math.isinf(bound) and "inf" not in text.lower() else bound
