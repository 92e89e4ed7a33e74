"""The work of `penstock timeseries stats|verify`: figures of every tenant, and whether all of it agrees."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime

import click

from penstock.cli.inspection.timeseries_reading import table, with_reader
from penstock.cli.settings.configuration import Settings
from penstock.observability import Observer
from penstock.timeseries import SeriesVerifyReport, TenantStats, TimeSeriesReader

__all__ = ["show_stats", "show_verification"]


def show_stats(settings: Settings, store: str, path: str, top: int, *, as_json: bool) -> None:
    async def work(reader: TimeSeriesReader) -> list[TenantStats]:
        return [await reader.stats(tenant=tenant, top=top) for tenant in await reader.tenants()]

    found = with_reader(settings, store, path, work)
    for stats in found:
        if as_json:
            click.echo(json.dumps(dataclasses.asdict(stats), ensure_ascii=False))
        else:
            _show(stats)
    if not found and not as_json:
        click.echo("There is no tenant yet.")


def _show(stats: TenantStats) -> None:
    click.echo(
        f"{stats.tenant}: {stats.samples:,} samples in {stats.hours:,} hours, {_time(stats.first_ms)} to "
        f"{_time(stats.end_ms)}; {stats.bytes:,} bytes in {stats.blocks:,} blocks, "
        f"{stats.bytes_per_sample:.2f} per sample; {stats.series:,} series in the newest hour"
    )
    for heading, counted, counts in (
        ("metric", "series", stats.metrics),
        ("label", "values", stats.label_values),
        ("pair", "series", stats.label_pairs),
        ("largest series", "samples", stats.top_series),
    ):
        if counts:
            table((heading, counted), [(name, f"{count:,}") for name, count in counts.items()], right=(counted,))


def _time(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%MZ")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def show_verification(settings: Settings, store: str, path: str, observer: Observer) -> bool:
    """Whether everything agrees."""

    async def work(reader: TimeSeriesReader) -> tuple[list[SeriesVerifyReport], list[str]]:
        return [await reader.verify(tenant=tenant) for tenant in await reader.tenants()], await reader.record_problems()

    reports, records = with_reader(settings, store, path, work, observer)
    for report in reports:
        verdict = "sound" if report.ok else f"{len(report.problems):,} problems"
        click.echo(f"{report.tenant}: {verdict} ({report.samples:,} samples, {report.hours:,} hours read)")
        for problem in report.problems:
            click.echo(f"  - {problem}")
    for problem in records:
        click.echo(f"records: {problem}")
    if not reports:
        click.echo("There is no tenant yet.")
    return not records and all(report.ok for report in reports)
