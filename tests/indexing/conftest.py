"""Jobs without Spark: what is promised of indexing holds whichever engine runs it, and this one starts at once.

`tests/pipelines/test_indexing_on_spark.py` runs some of these tests on the other engine, and `tests/contracts` both.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.indexing.priced_model import PROFILE

from penstock.testing.servers.embedding_server import EmbeddingServer
from penstock.testing.shelf import IndexShelf


@pytest.fixture(scope="session")
def engine() -> None:
    """What a desk or a shelf is made with: no session."""


@pytest.fixture
def shelf(engine: None, tmp_path: Path) -> IndexShelf:
    (tmp_path / "documents").mkdir()
    return IndexShelf(engine, tmp_path)


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    """Where the model of `priced_model` is asked."""
    with EmbeddingServer(dimensions=PROFILE.dimensions) as started:
        yield started
