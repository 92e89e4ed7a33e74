"""What a query has to say beside its result: warnings (it may be wrong) and infos (it may not be what was meant)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from penstock.timeseries.promql.syntax.lexer import position
from penstock.timeseries.promql.syntax.tree import TextSpan

__all__ = ["NO_ANNOTATIONS", "Annotations", "Notes"]

# As many as Prometheus shows; the rest are counted.
_SHOWN_MAX = 10


@dataclasses.dataclass(frozen=True)
class Annotations:
    """Warnings and infos of a query, each once, with their place in the expression."""

    warnings: tuple[str, ...] = ()
    infos: tuple[str, ...] = ()


NO_ANNOTATIONS = Annotations()


class Notes:
    """Collects annotations while a query runs. Each text is kept once for the place where it was said first."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._warnings: dict[str, TextSpan] = {}
        self._infos: dict[str, TextSpan] = {}

    def warn(self, text: str, place: TextSpan) -> None:
        self._warnings.setdefault(f"PromQL warning: {text}", place)

    def inform(self, text: str, place: TextSpan) -> None:
        self._infos.setdefault(f"PromQL info: {text}", place)

    def collected(self) -> Annotations:
        return Annotations(self._listed(self._warnings, "warning"), self._listed(self._infos, "info"))

    def _listed(self, found: dict[str, TextSpan], kind: str) -> tuple[str, ...]:
        shown = [
            f"{text} ({position(self._expression, place.start)})" for text, place in _first(found.items(), _SHOWN_MAX)
        ]
        more = len(found) - len(shown)
        return (*shown, f"{more} more {kind} annotations omitted") if more else tuple(shown)


def _first(items: Iterable[tuple[str, TextSpan]], count: int) -> list[tuple[str, TextSpan]]:
    return [item for _, item in zip(range(count), items, strict=False)]
