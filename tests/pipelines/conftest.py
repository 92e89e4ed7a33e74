"""One Spark session for every test of the room: starting one costs more than most tests."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.pipelines.buffer_source import BufferDataSource
from penstock.pipelines.session import open_session, prepare_environment
from penstock.testing.shelf import Shelf

# The C1 compiler and the serial collector: a suite of short queries starts faster and never gets warm.
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch:
        environment = dict(os.environ)
        prepare_environment(environment, Path(sys.prefix) / "share" / "penstock" / "java")
        for name, value in environment.items():
            patch.setenv(name, value)
        session = open_session("local[2]", settings={"spark.driver.extraJavaOptions": _QUICK_JVM})
        session.dataSource.register(BufferDataSource)
        yield session
        session.stop()


@pytest.fixture
def shelf(spark: SparkSession, tmp_path: Path) -> Shelf:
    (tmp_path / "documents").mkdir()
    return Shelf(spark, tmp_path)
