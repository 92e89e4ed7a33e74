"""A queue of telemetry, the job in this process, and what the two stores hold afterwards."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.buffer import ConsumerConfig, DeadLetterPolicy, Producer, ProducerConfig, shard_config
from penstock.catalog import Catalog
from penstock.landing import Lander, LandingLimits, LandingStage, LocalStage, TelemetryConfig
from penstock.landing.work import LandingSettings
from penstock.objects import open_store
from penstock.telemetry import METRICS, encode_records
from penstock.timeseries import Matcher, MatchKind, TimeSeriesStore

HOUR = 3_600_000_000_000
START = 1_763_000_000_000_000_000 // HOUR * HOUR


def config_at(path: Path, **changes: Any) -> TelemetryConfig:
    given: dict[str, Any] = {
        "limits": LandingLimits(interval_seconds=0.0),
        "consumer": ConsumerConfig(dead_letter=DeadLetterPolicy.SET_ASIDE),
    }
    return TelemetryConfig(f"file://{path}", **{**given, **changes})


def metric_rows(first: int, count: int, tenant: str = "acme", series: int = 5, hours: int = 1) -> pa.Table:
    """Samples that are told apart by their value, each at a time of its own."""
    rows = [
        {
            "tenant": tenant,
            "time": START + (number % hours) * HOUR + number * 1_000_000,
            "metric": f"m{number % series}",
            "type": "gauge",
            "convention": "prometheus",
            "labels": [("instance", f"i{number % series}")],
            "value": float(number),
        }
        for number in range(first, first + count)
    ]
    return pa.Table.from_pylist(rows, METRICS)


async def produce(config: TelemetryConfig, batches: Sequence[Mapping[str, pa.Table]], metadata: bytes = b"") -> None:
    """One batch object each."""
    store = await open_store(config.url, **config.options)
    for tables in batches:
        async with Producer(store, shard_config(ProducerConfig(), config.shard)) as producer:
            records, envelope = encode_records(tables)
            await (await producer.produce(records, envelope + metadata)).durable()
    await store.close()


def stage_of(config: TelemetryConfig) -> LocalStage:
    return LocalStage(LandingSettings.of(config))


async def land(config: TelemetryConfig, stage: LandingStage | None = None) -> Any:
    """Everything that waits; the summary."""
    lander = await Lander.open(config, stage or stage_of(config))
    try:
        return await lander.run_available()
    finally:
        await lander.close()


async def table_rows(config: TelemetryConfig, **query: Any) -> list[dict[str, Any]]:
    """All rows that the catalog shows."""
    store = await open_store(config.url)
    try:
        async with await Catalog.open(store, config.catalog_path) as catalog:
            paths = [file.path for file in await catalog.files(**query)]
            bodies = [(await store.get(f"{config.catalog_path}/{path}")).data for path in paths]
    finally:
        await store.close()
    return [row for body in bodies for row in pq.read_table(io.BytesIO(bytes(body))).to_pylist()]


async def landed_values(config: TelemetryConfig, tenant: str = "acme") -> Counter[float]:
    return Counter(row["value"] for row in await table_rows(config, tenant=tenant, table="metrics"))


async def sample_values(config: TelemetryConfig, tenant: str = "acme") -> Counter[float]:
    """All samples of a tenant, by their values."""
    async with await TimeSeriesStore.open(config.url, config.series_path) as store:
        found = await store.select([Matcher("__name__", MatchKind.REGEX, ".+")], tenant=tenant)
    return Counter(value for values in found.column("values").to_pylist() for value in values)
