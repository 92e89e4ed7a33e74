"""The function `info`: series get the labels of the info metrics that describe their target.

An info metric (`target_info`, unless the call names others) describes the series that share its `instance` and `job`.
Its labels may change over time, so that one series can become several that follow each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from itertools import compress

import numpy as np
import numpy.typing as npt

from penstock.errors import InvalidInput
from penstock.timeseries.promql.columns.frame import Cells, Presence, VectorFrame, empty_frame, merged
from penstock.timeseries.promql.labels import METRIC_NAME, Labels, keep, labels_from, text, value_of
from penstock.timeseries.promql.matchers import Matcher, MatchKind

__all__ = ["InfoLabels", "info_matchers", "with_info"]

_IDENTIFYING = ("instance", "job")
_TARGET_INFO = Matcher(METRIC_NAME, MatchKind.EQUAL, "target_info")
_ANY_INFO = Matcher(METRIC_NAME, MatchKind.REGEX, ".+_info")
_NONE = -1


@dataclasses.dataclass(frozen=True)
class InfoLabels:
    """What a call asks of info metrics: matchers of their names, and of the labels to take from them."""

    names: tuple[Matcher, ...]
    data: tuple[Matcher, ...]

    def describes(self, name: str) -> bool:
        return all(matcher.predicate()(name) for matcher in self.names)

    @property
    def optional(self) -> bool:
        """Whether series without an info metric stay."""
        return all(matcher.predicate()("") for matcher in self.data)

    def wanted(self, label: str) -> bool:
        return label != METRIC_NAME and (not self.data or any(matcher.name == label for matcher in self.data))


def info_matchers(matchers: tuple[Matcher, ...]) -> InfoLabels:
    """From the second argument of a call; without names it is about `target_info`."""
    names = tuple(matcher for matcher in matchers if matcher.name == METRIC_NAME)
    data = tuple(matcher for matcher in matchers if matcher.name != METRIC_NAME)
    if not names:
        return InfoLabels((_TARGET_INFO,), data)
    if not any(matcher.kind in (MatchKind.EQUAL, MatchKind.REGEX) for matcher in names):
        names = (_ANY_INFO, *names)
    return InfoLabels(names, data)


def with_info(frame: VectorFrame, info: VectorFrame, asked: InfoLabels) -> VectorFrame:
    """The frame with labels of info series, whose values are the times of their samples: the newest describes."""
    plain = [not asked.describes(value_of(own, METRIC_NAME)) for own in frame.labels]
    targets = _Targets(compress(frame.labels, plain))
    described = _described(info, [row for row, own in enumerate(info.labels) if own in targets], frame.covered())
    labels: list[Labels] = []
    rows: list[int] = []
    present: list[Presence] = []
    for row, own in enumerate(frame.labels):
        if not plain[row]:
            rows.append(row)
            labels.append(own)
            present.append(frame.present[row])
            continue
        for infos, shown in described.get(keep(own, _IDENTIFYING), _nothing(frame)):
            if (infos or asked.optional) and (shown & frame.present[row]).any():
                rows.append(row)
                labels.append(_joined(own, infos, asked))
                present.append(shown & frame.present[row])
    if not rows:
        return empty_frame(frame.steps)
    shown = np.array(present)
    values: Cells = np.where(shown, frame.values[rows], 0.0)
    return merged(VectorFrame(labels, values, shown, frame.unnamed[rows]))


_Described = dict[Labels, list[tuple[list[Labels], Presence]]]


def _nothing(frame: VectorFrame) -> list[tuple[list[Labels], Presence]]:
    return [([], np.ones(frame.steps, np.bool_))]


class _Targets:
    """What the series to describe are identified by: only info series of these are read.

    As Prometheus selects them: by each label of its own, among series that have the same of these labels.
    """

    def __init__(self, series: Iterable[Labels]) -> None:
        self._values: dict[tuple[str, ...], list[set[str]]] = {}
        for labels in series:
            target = keep(labels, _IDENTIFYING)
            own = self._values.setdefault(tuple(name for name, _ in target), [set() for _ in target])
            for values, (_, value) in zip(own, target, strict=True):
                values.add(value)
        # A series without any of them has no target.
        self._values.pop((), None)

    def __contains__(self, labels: Labels) -> bool:
        target = keep(labels, _IDENTIFYING)
        own = self._values.get(tuple(name for name, _ in target), ())
        return bool(own) and all(value in values for values, (_, value) in zip(own, target, strict=True))


def _described(info: VectorFrame, rows: list[int], needed: Presence) -> _Described:
    """For each target: the sets of info series that describe it together, and the steps at which they do."""
    metrics: dict[Labels, dict[str, list[int]]] = {}
    for row in rows:
        labels = info.labels[row]
        names = metrics.setdefault(keep(labels, _IDENTIFYING), {})
        names.setdefault(value_of(labels, METRIC_NAME), []).append(row)
    found: _Described = {}
    for target, names in metrics.items():
        newest = np.array([_newest(info, rows, needed) for rows in names.values()])
        together, owner = np.unique(newest, axis=1, return_inverse=True)
        found[target] = [
            ([info.labels[row] for row in together[:, number] if row != _NONE], owner.ravel() == number)
            for number in range(together.shape[1])
        ]
    return found


def _newest(info: VectorFrame, rows: list[int], needed: Presence) -> npt.NDArray[np.int64]:
    """At each step the row whose sample is newest; two of the same time contradict each other."""
    times = np.where(info.present[rows], info.values[rows], -np.inf)
    best = times.max(axis=0)
    twice = np.flatnonzero(((times == best) & np.isfinite(times)).sum(axis=0) * needed > 1)
    if len(twice):
        same = np.flatnonzero(times[:, twice[0]] == best[twice[0]])[:2]
        existing, new = (text(info.labels[rows[index]]) for index in same)
        at = round(best[twice[0]] * 1000)
        raise InvalidInput(
            f"found duplicate series for info metric: existing {existing} @ {at}, new {new} @ {at}",
            "a target has one series of each info metric at a time",
        )
    return np.where(np.isfinite(best), np.array(rows)[times.argmax(axis=0)], _NONE)


def _joined(own: Labels, infos: list[Labels], asked: InfoLabels) -> Labels:
    base = dict(own)
    added: dict[str, str] = {}
    for labels in infos:
        for name, value in labels:
            if not asked.wanted(name):
                continue
            if added.get(name, value) != value:
                raise InvalidInput(f"conflicting label: {name}", "two info metrics give it different values")
            if name not in base:
                added[name] = value
    return labels_from({**base, **added})
