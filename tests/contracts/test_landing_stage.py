"""What the heavy stage of the telemetry job promises, whichever engine runs it: in this process, and on Spark."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.landing.world import config_at, land, landed_values, metric_rows, produce, sample_values

from penstock.buffer import queued_now
from penstock.landing import LandingLimits, LandingStage, LandingTask, LocalStage, TelemetryConfig
from penstock.landing.work import LandingSettings
from penstock.objects import open_store


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.integration)])
def stage(request: pytest.FixtureRequest) -> Callable[[TelemetryConfig], LandingStage]:
    def opened(config: TelemetryConfig) -> LandingStage:
        settings = LandingSettings.of(config)
        if request.param == "local":
            return LocalStage(settings)
        from penstock.pipelines.telemetry.stage import SparkLandingStage

        return SparkLandingStage(request.getfixturevalue("spark"), settings)

    return opened


def test_answers_come_in_the_order_of_tasks_with_files_and_samples(stage: Any, tmp_path: Path) -> None:
    config = config_at(tmp_path)
    orders = pa.table({"tenant": ["acme"], "n": [1]})
    asyncio.run(produce(config, [{"metrics": metric_rows(0, 10)}, {"metrics": metric_rows(10, 20), "orders": orders}]))
    first, second = stage(config).land(_tasks(config))
    assert [file.rows for file in first.files] == [10]
    assert {(file.table, file.rows) for file in second.files} == {("metrics", 20), ("orders", 1)}
    assert np.concatenate([one.value for one in second.samples]).tolist() == [float(n) for n in range(10, 30)]
    assert {len(one.labels) for one in second.samples} == {5}
    assert second.tables == {("acme", "orders"): {"tenant": "string", "n": "int64"}}
    assert first.files[0].bounds["value"][:2] == (0.0, 9.0)


def test_what_is_asked_again_writes_the_same_files(stage: Any, tmp_path: Path) -> None:
    config = config_at(tmp_path)
    asyncio.run(produce(config, [{"metrics": metric_rows(0, 10)}]))
    opened = stage(config)
    once = opened.land(_tasks(config))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}
    again = opened.land(_tasks(config))
    assert once[0].files == again[0].files
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")} == before


def test_a_batch_that_cannot_be_read_is_an_outcome(stage: Any, tmp_path: Path) -> None:
    config = config_at(tmp_path)
    asyncio.run(produce(config, [{"metrics": metric_rows(0, 10)}]))
    next(tmp_path.rglob("*.batch")).write_bytes(b"x")
    (answer,) = stage(config).land(_tasks(config))
    assert [(one.sequence, one.kind) for one in answer.lost] == [(0, "Corrupt")]
    assert answer.files == []


def test_a_job_on_it_lands_every_row_once(stage: Any, tmp_path: Path) -> None:
    config = config_at(tmp_path, limits=LandingLimits(bytes_per_task=1, batches_per_round=2, interval_seconds=0.0))
    asyncio.run(produce(config, [{"metrics": metric_rows(10 * n, 10)} for n in range(3)]))
    asyncio.run(land(config, stage(config)))
    expected = Counter(float(number) for number in range(30))
    assert asyncio.run(landed_values(config)) == expected
    assert asyncio.run(sample_values(config)) == expected


def _tasks(config: TelemetryConfig) -> list[LandingTask]:
    async def found() -> list[LandingTask]:
        store = await open_store(config.url)
        try:
            queued = list(await queued_now(store, config.consumer.manifest_path))
        finally:
            await store.close()
        return [
            LandingTask(part, "queue", queued[0].sequence, queued[-1].sequence, (one,), True, True)
            for part, one in enumerate(queued)
        ]

    return asyncio.run(found())
