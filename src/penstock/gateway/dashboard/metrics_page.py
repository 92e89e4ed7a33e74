"""The metric explorer: metrics by name with their type and help, and an expression's values now, as tables.

The script of the page plots the same expression over a range; everything here works without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import DeadlineExceeded, PenstockError
from penstock.gateway.dashboard.views import TableView
from penstock.gateway.http.refusals import refusal_of

__all__ = ["ExploredSeries", "MetricExplorer"]

RANGES: Final = {"1": "1 hour", "6": "6 hours", "24": "1 day", "168": "7 days"}
_NAMES_MAX: Final = 200
_SERIES_MAX: Final = 200
_DAY_MS: Final = 24 * 3600 * 1000
_NAME: Final = "__name__"


class ExploredSeries(Protocol):
    """What is asked of the series, by tenant."""

    async def query(self, tenant: str, expression: str, time_ms: int) -> Any: ...

    async def label_values(
        self, tenant: str, name: str, selectors: Sequence[Any], start_ms: int, end_ms: int
    ) -> list[str]: ...

    async def metadata(self, tenant: str, metric: str | None) -> Mapping[str, Sequence[Mapping[str, str]]]: ...


class MetricExplorer:
    """What the page shows."""

    def __init__(self, series: ExploredSeries, seconds_max: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._series, self._seconds_max, self._clock = series, seconds_max, clock

    async def page(self, tenant: str, expression: str, hours: str, find: str) -> dict[str, Any]:
        given: dict[str, Any] = {
            "query": expression,
            "hours": hours if hours in RANGES else "1",
            "ranges": RANGES,
            "find": find,
            "problem": "",
            "values": None,
            "metrics": [],
            "metric_count": 0,
        }
        try:
            async with asyncio.timeout(self._seconds_max):
                if expression.strip():
                    given["values"] = await self._values(tenant, expression)
                else:
                    given["metrics"], given["metric_count"] = await self._metrics(tenant, find)
        except TimeoutError:
            given["problem"] = str(DeadlineExceeded(f"the query took longer than {self._seconds_max:g} s"))
        except PenstockError as error:
            if refusal_of(error).is_hidden:
                # The answer hides what the log has.
                raise
            given["problem"] = str(error)
        return given

    async def _values(self, tenant: str, expression: str) -> TableView:
        found = (await self._series.query(tenant, expression, self._clock.now_ms())).to_json()["data"]
        if found["resultType"] in ("scalar", "string"):
            return TableView(("value",), [(str(found["result"][1]),)], frozenset({0}))
        rows = [
            (series_text(one["metric"]), str((one.get("value") or one["values"][-1])[1]))
            for one in found["result"][:_SERIES_MAX]
            if "value" in one or one.get("values")
        ]
        return TableView(("series", "value now"), rows, frozenset({1}), "No series has a value now.")

    async def _metrics(self, tenant: str, find: str) -> tuple[list[tuple[str, str, str]], int]:
        """Name, type and help of the metrics of the last day, and how many there are."""
        now = self._clock.now_ms()
        names = await self._series.label_values(tenant, _NAME, [], now - _DAY_MS, now)
        wanted = [name for name in names if find.lower() in name.lower()]
        described = await self._series.metadata(tenant, None)
        rows = []
        for name in wanted[:_NAMES_MAX]:
            first = next(iter(described.get(name, ())), {})
            rows.append((name, first.get("type", ""), first.get("help", "")))
        return rows, len(wanted)


def series_text(metric: Mapping[str, str]) -> str:
    """A series as PromQL writes it."""
    labels = ", ".join(f'{name}="{value}"' for name, value in metric.items() if name != _NAME)
    name = metric.get(_NAME, "")
    return f"{name}{{{labels}}}" if labels or not name else name
