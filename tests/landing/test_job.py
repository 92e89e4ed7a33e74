"""The job for callers without a loop: it lands what waits, follows what comes, and ends when asked."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from tests.landing.world import config_at, landed_values, metric_rows, produce

from penstock.errors import Fenced
from penstock.landing import LocalTelemetryJob
from penstock.timeseries import MetricMetadata, TimeSeriesStore


def test_it_lands_what_waits_and_closes_twice(tmp_path: Path) -> None:
    config = config_at(tmp_path, series_path="")
    asyncio.run(produce(config, [{"metrics": metric_rows(0, 10)}]))
    with LocalTelemetryJob(config) as job:
        assert job.run_available().rows == 10
        assert job.positions == {0: 0}
    job.close()


def test_a_job_that_follows_lands_what_comes_until_it_is_interrupted(tmp_path: Path) -> None:
    config = config_at(tmp_path, series_path="")
    with LocalTelemetryJob(config) as job:
        landed = threading.Event()
        count = job._landers._landers[0]._tell
        job._landers._landers[0]._tell = lambda *told: (count(*told), landed.set())[0]  # type: ignore[method-assign]
        job.start()
        asyncio.run(produce(config, [{"metrics": metric_rows(0, 10)}]))
        assert landed.wait(60)
        job.interrupt()
        job.await_end()
        assert job.summary.rows == 10


def test_a_second_job_takes_the_queue_over(tmp_path: Path) -> None:
    config = config_at(tmp_path, series_path="")
    asyncio.run(produce(config, [{"metrics": metric_rows(0, 10)}]))
    with LocalTelemetryJob(config) as first, LocalTelemetryJob(config) as second:
        with pytest.raises(Fenced):
            first.run_available()
        second.run_available()
    assert asyncio.run(landed_values(config)) == Counter(float(number) for number in range(10))


def test_what_metrics_are_reaches_the_series_with_their_samples(tmp_path: Path) -> None:
    config = config_at(tmp_path)
    samples = metric_rows(0, 10, series=1)
    columns = samples.schema.names
    told = samples.set_column(columns.index("description"), "description", pa.array(["Rows seen."] * 10))
    told = told.set_column(columns.index("unit"), "unit", pa.array(["rows"] * 10))
    asyncio.run(produce(config, [{"metrics": told}]))
    with LocalTelemetryJob(config) as job:
        job.run_available()

    async def read() -> dict[str, MetricMetadata]:
        async with await TimeSeriesStore.open_reader(config.url, config.series_path) as reader:
            return await reader.metadata(tenant="acme")

    assert asyncio.run(read()) == {"m0": MetricMetadata("gauge", "Rows seen.", "rows")}
