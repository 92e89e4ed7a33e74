"""Functions of classic histograms: series that count observations up to the bound in their label `le`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from penstock.timeseries.promql.columns.frame import Cells, Presence, VectorFrame, empty_frame
from penstock.timeseries.promql.context import EvaluationContext
from penstock.timeseries.promql.functions.buckets import bucket_fraction, bucket_quantile
from penstock.timeseries.promql.labels import METRIC_NAME, Labels, drop, replace, value_of
from penstock.timeseries.promql.syntax.number_text import go_text, open_metrics_text
from penstock.timeseries.promql.syntax.tree import TextSpan

__all__ = ["histogram_fraction", "histogram_quantile", "histogram_quantiles", "warn_of_quantiles"]

Index = npt.NDArray[np.intp]

_BOUND = "le"


@dataclasses.dataclass(frozen=True)
class _ClassicHistogram:
    """The buckets of one histogram, by rising bound (buckets × steps)."""

    labels: Labels
    bounds: Cells
    counts: Cells
    present: Presence


def warn_of_quantiles(q: Cells, context: EvaluationContext, place: TextSpan) -> None:
    """One warning for each value that no quantile can have."""
    wrong = np.isnan(q) | (q < 0) | (q > 1)
    for value in np.unique(q[wrong]):
        context.notes.warn(f"quantile value should be between 0 and 1, got {go_text(float(value))}", place)


def histogram_quantile(q: Cells, frame: VectorFrame, context: EvaluationContext, place: TextSpan) -> VectorFrame:
    def quantile(histogram: _ClassicHistogram, steps: Index, rows: Index) -> Cells:
        found, forced = bucket_quantile(q[steps], histogram.bounds[rows], histogram.counts[np.ix_(rows, steps)])
        if forced:
            name = value_of(histogram.labels, METRIC_NAME)
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
    """One series for each quantile, named in a label."""
    parts: list[VectorFrame] = []
    for q in quantiles:
        found = histogram_quantile(q, frame, context, place)
        named = [replace(labels, label, open_metrics_text(float(q[0]))) for labels in found.labels]
        parts.append(dataclasses.replace(found, labels=named))
    return VectorFrame(
        [labels for part in parts for labels in part.labels],
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.present for part in parts]),
        np.concatenate([part.unnamed for part in parts]),
    )


def histogram_fraction(
    lower: Cells, upper: Cells, frame: VectorFrame, context: EvaluationContext, place: TextSpan
) -> VectorFrame:
    def share(histogram: _ClassicHistogram, steps: Index, rows: Index) -> Cells:
        counts = histogram.counts[np.ix_(rows, steps)]
        return bucket_fraction(lower[steps], upper[steps], histogram.bounds[rows], counts)

    return _each(frame, context, place, share)


def _each(
    frame: VectorFrame,
    context: EvaluationContext,
    place: TextSpan,
    function: Callable[[_ClassicHistogram, Index, Index], Cells],
) -> VectorFrame:
    """A value for each histogram and step; steps with the same buckets are computed together."""
    labels: list[Labels] = []
    values: list[Cells] = []
    present: list[Presence] = []
    for histogram in _histograms(frame, context, place):
        row = np.zeros(frame.steps)
        for rows, steps in _patterns(histogram.present):
            row[steps] = function(histogram, steps, rows)
        labels.append(histogram.labels)
        values.append(row)
        covered: Presence = np.any(histogram.present, axis=0)
        present.append(covered)
    if not labels:
        return empty_frame(frame.steps)
    return VectorFrame(labels, np.array(values), np.array(present), np.ones(len(labels), np.bool_))


def _patterns(present: Presence) -> Iterator[tuple[Index, Index]]:
    """Sets of buckets that exist together, and the steps at which they do."""
    if present.all():
        yield np.arange(present.shape[0]), np.arange(present.shape[1])
        return
    patterns, owner = np.unique(present, axis=1, return_inverse=True)
    for number in range(patterns.shape[1]):
        rows = np.flatnonzero(patterns[:, number])
        if len(rows):
            yield rows, np.flatnonzero(owner.ravel() == number)


def _histograms(frame: VectorFrame, context: EvaluationContext, place: TextSpan) -> Iterator[_ClassicHistogram]:
    members: dict[Labels, dict[float, list[int]]] = {}
    seen = frame.seen()
    for row, labels in enumerate(frame.labels):
        if not seen[row]:
            continue
        text = value_of(labels, _BOUND)
        bound = _parsed(text)
        if bound is None:
            name = value_of(labels, METRIC_NAME)
            suffix = f' for metric name "{name}"' if name else ""
            context.notes.warn(f'bucket label "le" is missing or has a malformed value of "{text}"{suffix}', place)
            continue
        members.setdefault(drop(labels, (_BOUND,)), {}).setdefault(bound, []).append(row)
    for labels, by_bound in members.items():
        bounds = sorted(by_bound)
        # Two spellings of one bound are one bucket.
        counts = [
            np.where(frame.present[by_bound[bound]], frame.values[by_bound[bound]], 0.0).sum(axis=0) for bound in bounds
        ]
        present = [frame.present[by_bound[bound]].any(axis=0) for bound in bounds]
        yield _ClassicHistogram(labels, np.array(bounds), np.array(counts), np.array(present))


def _parsed(text: str) -> float | None:
    if not text or text != text.strip() or "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None
