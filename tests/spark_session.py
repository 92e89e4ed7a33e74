"""One Spark session for every test that needs one: starting it costs more than most tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from tests.spark_start import SHIM_DIRECTORY, open_test_session

    from penstock.pipelines.queue_source.buffer_source import BufferDataSource
    from penstock.pipelines.spark.session import prepare_environment

    with pytest.MonkeyPatch.context() as patch:
        environment = dict(os.environ)
        prepare_environment(environment, SHIM_DIRECTORY)
        for name, value in environment.items():
            patch.setenv(name, value)
        session = open_test_session("local[2]")
        session.dataSource.register(BufferDataSource)
        yield session
        session.stop()
