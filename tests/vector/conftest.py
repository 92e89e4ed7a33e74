"""Rows, stores and queries that the tests of this room share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.vector import CollectionName
from penstock.vector.format.metric import DistanceMetric
from penstock.vector.format.state import CollectionRecord, CollectionState


@pytest.fixture
def rows() -> Callable[..., pa.Table]:
    """Makes a table of rows from ids, vectors, and perhaps texts and attributes."""

    def make(
        ids: Sequence[str], vectors: Any, texts: Sequence[str | None] | None = None, **attributes: Any
    ) -> pa.Table:
        matrix = np.asarray(vectors, np.float32).reshape(len(ids), -1)
        columns = {
            "id": pa.array(list(ids), pa.string()),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), matrix.shape[1]),
        }
        if texts is not None:
            columns["text"] = pa.array(list(texts), pa.string())
        if attributes:
            values = [value if isinstance(value, pa.Array) else pa.array(value) for value in attributes.values()]
            columns["attributes"] = pa.StructArray.from_arrays(values, names=list(attributes))
        return pa.table(columns)

    return make


@pytest.fixture
def empty_state() -> CollectionState:
    """A collection of four dimensions that has never been written to."""
    record = CollectionRecord(7, 4, DistanceMetric.L2, 0)
    return CollectionState.new(CollectionName("tenant", "index", "model"), record)
