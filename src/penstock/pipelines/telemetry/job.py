"""The telemetry job on Spark: from batches in the queue to data files and series, exactly once in both.

```python
with TelemetryJob(spark, TelemetryConfig("s3://bucket")) as job:
    job.run_available()
```
The driver holds each queue's one consumer and both stores' writers, and decides what a round takes; executors fetch,
decode, partition, sort and write. How far the job is lies in the stores, so it needs no checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.landing import LandingJob, LandingSettings, TelemetryConfig
from penstock.observability import SILENT, Observer
from penstock.pipelines.telemetry.stage import SparkLandingStage

__all__ = ["TelemetryJob"]


class TelemetryJob(LandingJob):
    """`run_available`, or `start` and `await_end`. Runs on the driver. Close it, or use it as a context manager."""

    def __init__(
        self,
        spark: SparkSession,
        config: TelemetryConfig,
        shards: Sequence[int] | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        observer: Observer = SILENT,
    ) -> None:
        stage = SparkLandingStage(spark, LandingSettings.of(config))
        super().__init__(config, stage, shards, clock=clock, observer=observer)
