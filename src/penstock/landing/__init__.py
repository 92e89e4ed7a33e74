"""The telemetry job without Spark: from the queue to data files in the catalog and samples in the time series."""

from penstock.landing.config import LandingLimits, ShardingConfig, TelemetryConfig
from penstock.landing.job import LandingJob, LocalTelemetryJob
from penstock.landing.lander import Lander, LandingSummary
from penstock.landing.landers import Landers
from penstock.landing.local import LocalStage
from penstock.landing.memory import settle_memory
from penstock.landing.port import LandedFile, LandingAnswer, LandingStage, LandingTask, LostBatch, given_up
from penstock.landing.sharded_series import ShardedSeries
from penstock.landing.wire import decode_answer, encode_answer
from penstock.landing.work import LandingSettings, land_task

__all__ = [
    "LandedFile",
    "Lander",
    "Landers",
    "LandingAnswer",
    "LandingJob",
    "LandingLimits",
    "LandingSettings",
    "LandingStage",
    "LandingSummary",
    "LandingTask",
    "LocalStage",
    "LocalTelemetryJob",
    "LostBatch",
    "ShardedSeries",
    "ShardingConfig",
    "TelemetryConfig",
    "decode_answer",
    "encode_answer",
    "given_up",
    "land_task",
    "settle_memory",
]
