"""Instant vectors over all steps of a query: a matrix of values, and which of its cells exist.

NaN is a value like any other, so presence is a matrix of its own. A series whose name is to go keeps it until the end
of the query (`unnamed`), where label functions and groupings may still see it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from penstock.errors import InvalidInput
from penstock.timeseries.promql.labels import EMPTY_LABELS, Labels, drop_metadata, text, without_metadata

__all__ = ["Cells", "Presence", "VectorFrame", "empty_frame", "merged", "single"]

Cells = npt.NDArray[np.float64]
Presence = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class VectorFrame:
    """Series × steps."""

    labels: list[Labels]
    values: Cells
    present: Presence
    unnamed: Presence

    @property
    def steps(self) -> int:
        return int(self.values.shape[1])

    def with_values(
        self, values: Cells, *, present: Presence | None = None, unnamed: bool | None = None
    ) -> VectorFrame:
        """The same series with other values; `unnamed` marks all of their names for removal."""
        return VectorFrame(
            self.labels,
            values,
            self.present if present is None else present,
            self.unnamed if unnamed is None else np.full(len(self.labels), unnamed),
        )

    def take(self, rows: Sequence[int] | npt.NDArray[np.int64]) -> VectorFrame:
        index = np.asarray(rows, dtype=np.int64)
        return VectorFrame(
            [self.labels[row] for row in index], self.values[index], self.present[index], self.unnamed[index]
        )

    def seen(self) -> Presence:
        """Which series exist at any step."""
        found: Presence = np.any(self.present, axis=1)
        return found

    def covered(self) -> Presence:
        """At which steps any series exists."""
        found: Presence = np.any(self.present, axis=0)
        return found

    def without_empty(self) -> VectorFrame:
        """Without series that exist at no step."""
        found = self.seen()
        return self if found.all() else self.take(np.flatnonzero(found))

    def named(self) -> VectorFrame:
        """With the names removed that were marked for it. Series that become the same are one, if they never meet."""
        if self.unnamed.all():
            labels = without_metadata(self.labels)
        else:
            pairs = zip(self.labels, self.unnamed.tolist(), strict=True)
            labels = [drop_metadata(own) if gone else own for own, gone in pairs]
        plain = VectorFrame(labels, self.values, self.present, np.zeros(len(labels), np.bool_))
        return merged(plain)


def empty_frame(steps: int) -> VectorFrame:
    return VectorFrame([], np.empty((0, steps)), np.empty((0, steps), np.bool_), np.empty(0, np.bool_))


def single(values: Cells, present: Presence | None = None, labels: Labels = EMPTY_LABELS) -> VectorFrame:
    """One series."""
    shown = np.ones(len(values), np.bool_) if present is None else present
    return VectorFrame([labels], values[None, :], shown[None, :], np.zeros(1, np.bool_))


def merged(frame: VectorFrame) -> VectorFrame:
    """Rows of equal labels become one; two samples of one series at one step are an error."""
    numbers: dict[Labels, int] = {}
    group = np.array([numbers.setdefault(labels, len(numbers)) for labels in frame.labels], dtype=np.int64)
    if len(numbers) == len(frame.labels):
        return frame
    shape = (len(numbers), frame.steps)
    counts = np.zeros(shape, dtype=np.int32)
    np.add.at(counts, group, frame.present)
    if (counts > 1).any():
        row = int(np.argwhere(counts > 1)[0, 0])
        raise InvalidInput(
            "vector cannot contain metrics with the same labelset",
            f"several series became {text(list(numbers)[row])}",
            "aggregate them, or keep what tells them apart",
        )
    values = np.zeros(shape)
    rows, steps = np.nonzero(frame.present)
    values[group[rows], steps] = frame.values[rows, steps]
    # Whichever row exists first decides whether the name goes; written last, so that it stays.
    unnamed = np.zeros(len(numbers), np.bool_)
    first_step = np.where(frame.seen(), frame.present.argmax(axis=1), frame.steps)
    latest_first = np.argsort(first_step, kind="stable")[::-1]
    unnamed[group[latest_first]] = frame.unnamed[latest_first]
    return VectorFrame(list(numbers), values, counts > 0, unnamed)
