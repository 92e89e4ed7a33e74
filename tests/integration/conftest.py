"""A Spark cluster for all tests that want one: it takes a quarter of a minute to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing.servers.spark_cluster import SparkCluster, spark_cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers of one core each: one application at a time gets both."""
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running
