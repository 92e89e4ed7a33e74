"""Every type that a table can have is one that Spark can read."""

from __future__ import annotations

import io
from datetime import time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.pipelines.catalog_source.spark_types import spark_schema
from penstock.telemetry import DataFileConfig, unstorable
from penstock.telemetry.data_files import parquet_bytes

arrow: Any = pa
COLUMNS: list[Any] = [
    pa.array([1, None], pa.uint8()),
    pa.array([2**64 - 1, None], pa.uint64()),
    pa.array([Decimal("1.5"), None], pa.decimal32(5, 2)),
    pa.array([Decimal("1.5"), None], pa.decimal128(38, 2)),
    pa.array([time(1), None], pa.time32("s")),
    pa.array([time(1), None], pa.time64("ns")),
    pa.array([timedelta(1), None], pa.duration("ms")),
    pa.array([1, None], pa.timestamp("s", tz="+05:45")),
    pa.array(["a", None], pa.string_view()),
    pa.array([b"a", None], pa.binary_view()),
    pa.array([b"abc", None], pa.binary(3)),
    pa.array(["a", None], pa.large_string()),
    pa.array(["a", None]).dictionary_encode(),
    pa.array([[1, 2], None], pa.list_(pa.int32(), 2)),
    pa.array([[1], None], pa.large_list(pa.uint16())),
    pa.array([{"a": [("k", "v")]}, None], pa.struct([("a", pa.map_(pa.string_view(), pa.large_string()))])),
    pa.array([b"0123456789abcdef", None], arrow.uuid()),
    pa.array(["{}", None], arrow.json_()),
    pa.nulls(2),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_a_column_that_a_table_can_have_is_one_of_spark(column: Any) -> None:
    table = pa.table({"v": column})
    assert not unstorable(table.schema)
    stored = pq.read_table(io.BytesIO(parquet_bytes(table, "mine", DataFileConfig())))
    schema = spark_schema(stored.schema)
    assert from_arrow_schema(schema).fieldNames() == ["v"]
    found = stored.cast(schema, safe=False)
    found.validate(full=True)
    assert found.column("v").null_count == column.null_count
