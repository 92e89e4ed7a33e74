"""Binary operators on numbers: arithmetic gives values, comparison says which to keep."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.timeseries.promql.columns.frame import Cells, Presence

__all__ = ["ARITHMETIC", "COMPARISON", "computed"]

ARITHMETIC: dict[str, Callable[[Cells, Cells], Cells]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
    "^": np.power,
    "atan2": np.arctan2,
}
COMPARISON: dict[str, Callable[[Cells, Cells], Presence]] = {
    "==": np.equal,
    "!=": np.not_equal,
    ">": np.greater,
    "<": np.less,
    ">=": np.greater_equal,
    "<=": np.less_equal,
}


def computed(operator: str, left: Cells, right: Cells, *, returns_bool: bool) -> tuple[Cells, Presence | None]:
    """Values, and for a comparison that filters which of them stay (with the value of the left side)."""
    if operator in ARITHMETIC:
        return ARITHMETIC[operator](left, right), None
    kept = COMPARISON[operator](left, right)
    if returns_bool:
        return kept.astype(np.float64), None
    return np.broadcast_to(left, kept.shape), kept
