"""Runs the indexing job for a command, on Spark or in this process, until it is done or `Stop` ends it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.cli.running.spark_session import SparkRun, opened_session
from penstock.cli.running.stop import Stop, close_quietly
from penstock.cli.settings.wiring import UNWIRED, Wiring
from penstock.cli.terminal.progress import ProgressView
from penstock.documents import ChunkingConfig
from penstock.indexing import Embedding, EmbeddingBudget, IndexingConfig, IndexingJob, Reading

__all__ = ["JobPlan", "StageEngine", "opened_job"]


class StageEngine(StrEnum):
    """What runs the heavy stages of a job."""

    SPARK = "spark"
    LOCAL = "local"


@dataclass(frozen=True)
class JobPlan:
    """What a job is started with."""

    url: str
    master: str = "local[*]"
    embedding: Embedding = field(default_factory=Embedding)
    reading: Reading = field(default_factory=Reading)
    # Of the index that the command is about, if that is still to be made, by tenant and index.
    chunking_by_index: Mapping[tuple[str, str], ChunkingConfig] = field(default_factory=dict)
    chunking: ChunkingConfig = field(default_factory=ChunkingConfig)
    engine: StageEngine = StageEngine.SPARK
    wiring: Wiring = UNWIRED
    # None where the configuration decides alone.
    budget: EmbeddingBudget | None = None

    @property
    def config(self) -> IndexingConfig:
        return self.wiring.job(
            self.url,
            embedding=self.embedding,
            reading=self.reading,
            chunking=self.chunking,
            chunking_by_index=self.chunking_by_index,
            budget=self.budget,
        )


@contextmanager
def opened_job(plan: JobPlan, view: ProgressView, stop: Stop) -> Iterator[IndexingJob]:
    """A job on an engine of its own, which `stop` ends; `Closed` when it does so before there is one."""
    with _local(plan, view, stop) if plan.engine is StageEngine.LOCAL else _on_spark(plan, view, stop) as job:
        view.working()
        try:
            yield job
        finally:
            close_quietly(job.close, stop)
            stop.calls(lambda: None)


@contextmanager
def _local(plan: JobPlan, view: ProgressView, stop: Stop) -> Iterator[IndexingJob]:
    from penstock.indexing import LocalIndexingJob

    job = LocalIndexingJob(plan.config, progress=view.show, observer=plan.wiring.observer)
    stop.calls(job.interrupt)
    yield job


@contextmanager
def _on_spark(plan: JobPlan, view: ProgressView, stop: Stop) -> Iterator[IndexingJob]:
    with opened_session(plan.master, plan.url, stop) as spark:
        from penstock.pipelines import SparkIndexingJob

        job = SparkIndexingJob(spark.session, plan.config, progress=view.show, observer=plan.wiring.observer)
        stop.calls(lambda: _interrupt(job, spark))
        yield job


def _interrupt(job: IndexingJob, spark: SparkRun) -> None:
    spark.hush()
    job.interrupt()
