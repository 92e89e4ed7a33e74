"""Runs of different lengths, as a few rectangular blocks: similar lengths share one, and no block is large."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from penstock.timeseries.promql.columns.frame import Presence

__all__ = ["blocks"]

Index = npt.NDArray[np.int64]

_CELLS_MAX = 1 << 20
# A block's shortest run is at least this part of its longest, so that little of it is padding.
_FILL_MIN = 0.5


def blocks(starts: Index, lengths: Index, width: int = 1) -> Iterator[tuple[Index, Index, Presence]]:
    """For runs that are not empty: which runs, the positions of their elements, and which of those count.

    Positions that do not count repeat the run's first. `width` is what an element takes, in cells.
    """
    order = np.argsort(lengths, kind="stable")
    order = order[np.searchsorted(lengths[order], 1) :]
    ordered = lengths[order]
    at = len(order)
    while at > 0:
        longest = int(ordered[at - 1])
        room = max(1, _CELLS_MAX // (longest * width))
        low = max(at - room, int(np.searchsorted(ordered, max(1, int(longest * _FILL_MIN)))))
        runs = order[low:at]
        offset = np.arange(longest)
        counts = offset[None, :] < lengths[runs][:, None]
        yield runs, np.where(counts, starts[runs][:, None] + offset[None, :], starts[runs][:, None]), counts
        at = low
