"""Everything on Spark, and the only room that imports pyspark: sessions, sources, and the Java they need.

Names are imported on first use: `penstock doctor` must work where Spark does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.pipelines.catalog_source.catalog_source import CatalogDataSource
    from penstock.pipelines.catalog_source.spark_sql import spark_rows
    from penstock.pipelines.compaction.merging import SparkMerging
    from penstock.pipelines.indexing.job import SparkIndexingJob
    from penstock.pipelines.indexing.stages import SparkStages
    from penstock.pipelines.queue_source.buffer_source import BufferDataSource
    from penstock.pipelines.spark.class_archive import ClassArchive
    from penstock.pipelines.spark.java import JavaRuntime, find_java
    from penstock.pipelines.spark.session import (
        abandon_session,
        class_archive,
        end_java,
        open_session,
        prepare_environment,
    )
    from penstock.pipelines.telemetry.job import TelemetryJob
    from penstock.pipelines.telemetry.stage import SparkLandingStage
    from penstock.pipelines.timeseries_source.timeseries_source import TimeSeriesDataSource

__all__ = [
    "BufferDataSource",
    "CatalogDataSource",
    "ClassArchive",
    "JavaRuntime",
    "SparkIndexingJob",
    "SparkLandingStage",
    "SparkMerging",
    "SparkStages",
    "TelemetryJob",
    "TimeSeriesDataSource",
    "abandon_session",
    "class_archive",
    "end_java",
    "find_java",
    "open_session",
    "prepare_environment",
    "spark_rows",
]

__getattr__ = lazy_names(
    __name__,
    {
        "catalog_source.catalog_source": ("CatalogDataSource",),
        "catalog_source.spark_sql": ("spark_rows",),
        "compaction.merging": ("SparkMerging",),
        "indexing.job": ("SparkIndexingJob",),
        "indexing.stages": ("SparkStages",),
        "queue_source.buffer_source": ("BufferDataSource",),
        "spark.class_archive": ("ClassArchive",),
        "spark.java": (
            "JavaRuntime",
            "find_java",
        ),
        "spark.session": (
            "abandon_session",
            "class_archive",
            "end_java",
            "open_session",
            "prepare_environment",
        ),
        "telemetry.job": ("TelemetryJob",),
        "telemetry.stage": ("SparkLandingStage",),
        "timeseries_source.timeseries_source": ("TimeSeriesDataSource",),
    },
)
