"""Jobs without Spark: what is promised of indexing holds whichever engine runs it, and this one starts at once.

`tests/pipelines/test_indexing_on_spark.py` runs some of these tests on the other engine, and `tests/contracts` both.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.testing.shelf import IndexShelf


@pytest.fixture(scope="session")
def engine() -> None:
    """What a desk or a shelf is made with: no session."""


@pytest.fixture
def shelf(engine: None, tmp_path: Path) -> IndexShelf:
    (tmp_path / "documents").mkdir()
    return IndexShelf(engine, tmp_path)
