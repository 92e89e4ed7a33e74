"""The work of `penstock timeseries` that reads: answers of a store as tables, plots or JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from shutil import get_terminal_size
from typing import Any, Final, TypeVar

import click

from penstock.cli.settings.configuration import Settings
from penstock.cli.settings.wiring import Wiring
from penstock.cli.terminal.instants import duration_ms, instant_ms
from penstock.cli.terminal.plot import plot_lines
from penstock.cli.terminal.tables import table_lines
from penstock.cli.terminal.terminal_text import terminal_text
from penstock.clock import SYSTEM_CLOCK
from penstock.errors import NotFound
from penstock.indexing import url_of
from penstock.observability import SILENT, Observer
from penstock.timeseries import Matcher, MergedReads, SeriesReads, TimeSeriesReader
from penstock.timeseries.promql import (
    MatrixResult,
    QueryResult,
    ScalarResult,
    StringResult,
    VectorResult,
    parse_selector_text,
)

__all__ = ["SeriesQueries", "matchers", "table", "with_reader", "with_series"]

T = TypeVar("T")

_STEPS: Final = 240
_PLOT_ROWS: Final = 12
# Lines that can still be told apart, and rows of a table that a person looks at.
_PLOTTED_MAX: Final = 20
_NAME: Final = "__name__"


def with_reader(
    settings: Settings,
    store: str,
    path: str,
    work: Callable[[TimeSeriesReader], Awaitable[T]],
    observer: Observer = SILENT,
) -> T:
    """Do something with a store that is open for reading."""

    async def opened() -> T:
        url = url_of(store)
        try:
            reader = await Wiring(settings, observer).series_reader(url, path)
        except NotFound as error:
            raise _nothing_in(store, error) from None
        async with reader:
            return await work(reader)

    return asyncio.run(opened())


def with_series(
    settings: Settings,
    store: str,
    path: str,
    tenant: str,
    work: Callable[[SeriesReads | MergedReads], Awaitable[T]],
    observer: Observer = SILENT,
) -> T:
    """Ask the series of a tenant, in all shards that it has had."""
    from penstock.cli.settings.sharding import sharded_series

    async def opened() -> T:
        try:
            async with await sharded_series(url_of(store), path, settings, observer) as series:
                return await work(await series.reader(tenant))
        except NotFound as error:
            raise _nothing_in(store, error) from None

    return asyncio.run(opened())


def _nothing_in(store: str, error: NotFound) -> NotFound:
    return NotFound(f"there are no time series in {store}", error.why or error.what, "write some, or give their --path")


def matchers(selector: str | None) -> tuple[Matcher, ...]:
    return () if selector is None else parse_selector_text(selector)


class SeriesQueries:
    """Questions to the series of one tenant."""

    def __init__(self, settings: Settings, store: str, path: str, tenant: str) -> None:
        self._settings = settings
        self._place = (store, path)
        self._tenant = tenant
        self._now_ms = SYSTEM_CLOCK.now_ms()

    def query(self, expression: str, at: str, *, as_json: bool) -> None:
        time_ms = instant_ms(at, self._now_ms)
        result = self._ask(lambda reader: reader.query(expression, time_ms, tenant=self._tenant))
        if as_json:
            click.echo(json.dumps(result.to_json()))
            return
        _tell(result)
        if isinstance(result, ScalarResult | StringResult):
            click.echo(terminal_text(str(result.json_result()[1])))
        elif isinstance(result, VectorResult):
            rows = [(_series_text(one["metric"]), one["value"][1]) for one in result.json_result()]
            table(("series", "value"), rows, right=("value",))
        else:
            _show_samples(result)

    def query_range(
        self, expression: str, start: str, end: str, step: str | None, *, plot: bool, as_json: bool
    ) -> None:
        start_ms, end_ms = self._times(start, end)
        step_ms = max(1, (end_ms - start_ms) // _STEPS) if step is None else duration_ms(step)
        result = self._ask(
            lambda reader: reader.query_range(expression, start_ms, end_ms, step_ms, tenant=self._tenant)
        )
        if as_json:
            click.echo(json.dumps(result.to_json()))
            return
        _tell(result)
        if plot and sys.stdout.isatty():
            _show_plot(result)
        _show_samples(result)

    def series(self, selector: str | None, start: str, end: str, *, as_json: bool) -> None:
        times = self._times(start, end)
        found = self._ask(lambda reader: reader.series(matchers(selector), *times, tenant=self._tenant))
        for labels in found:
            click.echo(json.dumps(labels, ensure_ascii=False) if as_json else terminal_text(_series_text(labels)))

    def labels(self, name: str | None, selector: str | None, start: str, end: str, *, as_json: bool) -> None:
        times = self._times(start, end)
        asked = matchers(selector)
        if name is None:
            found = self._ask(lambda reader: reader.label_names(asked, *times, tenant=self._tenant))
        else:
            found = self._ask(lambda reader: reader.label_values(name, asked, *times, tenant=self._tenant))
        for text in found:
            click.echo(json.dumps(text, ensure_ascii=False) if as_json else terminal_text(text))

    def _times(self, start: str, end: str) -> tuple[int, int]:
        return instant_ms(start, self._now_ms), instant_ms(end, self._now_ms)

    def _ask(self, work: Callable[[SeriesReads | MergedReads], Awaitable[T]]) -> T:
        return with_series(self._settings, *self._place, self._tenant, work)


def _series_text(labels: Mapping[str, str]) -> str:
    rest = ", ".join(
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels.items() if name != _NAME
    )
    name = labels.get(_NAME, "")
    return f"{name}{{{rest}}}" if rest or not name else name


def table(headings: tuple[str, ...], rows: list[Any], *, right: tuple[str, ...] = ()) -> None:
    for line in table_lines(headings, [[terminal_text(cell) for cell in row] for row in rows], right=right):
        click.echo(line)


def _show_samples(result: MatrixResult) -> None:
    """A line for each series: how many samples, and the first, least, most and last of them."""
    columns = result.columns
    rows = []
    for row, labels in enumerate(columns.labels):
        values = columns.values[columns.offsets[row] : columns.offsets[row + 1]]
        told = (values[0], values.min(), values.max(), values[-1])
        rows.append((_series_text(dict(labels)), f"{len(values):,}", *(f"{float(value):.6g}" for value in told)))
    if rows:
        table(
            ("series", "samples", "first", "min", "max", "last"), rows, right=("samples", "first", "min", "max", "last")
        )


def _show_plot(result: MatrixResult) -> None:
    columns = result.columns
    spans = [slice(columns.offsets[row], columns.offsets[row + 1]) for row in range(len(columns.labels))][:_PLOTTED_MAX]
    lines = [list(zip(columns.timestamps[span].tolist(), columns.values[span].tolist(), strict=True)) for span in spans]
    for line in plot_lines(lines, max(20, min(get_terminal_size().columns, 160) - 14), _PLOT_ROWS):
        click.echo(line)
    if len(columns.labels) > _PLOTTED_MAX:
        click.echo(f"(the first {_PLOTTED_MAX} of {len(columns.labels):,} series)")


def _tell(result: QueryResult) -> None:
    for text in (*result.annotations.warnings, *result.annotations.infos):
        click.echo(terminal_text(text), err=True)
