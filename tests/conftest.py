"""Real servers that several rooms test against, started once for a run and only when a test asks for them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.servers.object_stores import AzureServer, S3Server, ServerMissing, azurite, seaweedfs

pytest_plugins = ["tests.campaigns", "tests.spark_session"]

# Spark starts in half the time with the archive of its classes that `make test` records. Commands that tests start leave
# nothing behind in the user's cache, and no process that fills it.
CLASS_ARCHIVES = Path(sys.prefix) / "share" / "penstock" / "cache" / "penstock" / "java"
os.environ.setdefault("PENSTOCK_CLASS_ARCHIVE", str(CLASS_ARCHIVES) if CLASS_ARCHIVES.is_dir() else "off")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever talks to a real server is an integration test, also where nobody said so."""
    for item in items:
        if not {"s3_server", "azure_server"}.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """SeaweedFS with the bucket `penstock`. Tests share it: each writes below a prefix of its own."""
    try:
        with seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
            yield server
    except ServerMissing as missing:
        pytest.skip(f"no S3 server here: {missing}")


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """Azurite with the container `penstock`. Tests share it: each writes below a prefix of its own."""
    try:
        with azurite(tmp_path_factory.mktemp("azurite")) as server:
            yield server
    except ServerMissing as missing:
        pytest.skip(f"no Azure server here: {missing}")
