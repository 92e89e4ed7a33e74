"""Runs the telemetry job for a command: its configuration, and an engine around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from penstock.buffer import ConsumerConfig
from penstock.catalog import CatalogConfig
from penstock.cli.running.stop import Stop, close_quietly
from penstock.cli.settings.configuration import Settings
from penstock.cli.settings.store_access import service_options
from penstock.cli.settings.telemetry_place import telemetry_url
from penstock.keyvalue import KeyValueConfig
from penstock.landing import LandingJob, LandingLimits, LocalTelemetryJob, TelemetryConfig, settle_memory
from penstock.observability import Observer
from penstock.telemetry import DataFileConfig, SeriesConfig
from penstock.timeseries import TimeSeriesConfig

__all__ = ["landing_config", "opened_landing"]


def landing_config(settings: Settings, store: str, catalog_path: str, series_path: str) -> TelemetryConfig:
    """The job on a store, as the configuration wants it."""
    url = telemetry_url(store)
    return TelemetryConfig(
        url,
        options=service_options(settings, url),
        catalog_path=catalog_path,
        series_path=series_path,
        limits=settings.of(LandingLimits),
        files=settings.of(DataFileConfig),
        mapping=settings.of(SeriesConfig),
        consumer=settings.of(ConsumerConfig),
        catalog=settings.of(CatalogConfig),
        series=settings.of(TimeSeriesConfig),
        keyvalue=settings.of(KeyValueConfig).writing,
    )


@contextmanager
def opened_landing(
    config: TelemetryConfig,
    engine: str,
    master: str,
    stop: Stop,
    observer: Observer,
    shards: Sequence[int] | None = None,
) -> Iterator[LandingJob]:
    """A job on an engine of its own, which `stop` ends; on some shards, or on all there are."""
    settle_memory()
    if engine == "local":
        with _ended(LocalTelemetryJob(config, shards, observer=observer), stop) as job:
            yield job
        return
    from penstock.cli.running.spark_session import opened_session

    with opened_session(master, config.url, stop) as spark:
        from penstock.pipelines import TelemetryJob

        with _ended(TelemetryJob(spark.session, config, shards, observer=observer), stop) as job:
            yield job


@contextmanager
def _ended(job: LandingJob, stop: Stop) -> Iterator[LandingJob]:
    stop.calls(job.interrupt)
    try:
        yield job
    finally:
        close_quietly(job.close, stop)
        stop.calls(lambda: None)
