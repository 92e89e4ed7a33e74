"""Arrow types as Spark has them: no unsigned integers, no dictionaries, times in microseconds."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pat

__all__ = ["for_spark", "spark_schema"]

_PLAIN: Final[dict[Any, Any]] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.date64(): pa.date32(),
    pa.null(): pa.string(),
}


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """The same columns in types that Spark can take, every one nullable because Spark compares that too."""
    return pa.schema([pa.field(field.name, for_spark(field.type)) for field in schema])


def for_spark(given: pa.DataType) -> pa.DataType:
    kind: Any = given
    if kind in _PLAIN:
        found: pa.DataType = _PLAIN[kind]
        return found
    if pat.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if pat.is_dictionary(kind):
        return for_spark(kind.value_type)
    if pat.is_map(kind):
        return pa.map_(for_spark(kind.key_type), for_spark(kind.item_type))
    if pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind):
        return pa.list_(for_spark(kind.value_type))
    if pat.is_struct(kind):
        return pa.struct([pa.field(one.name, for_spark(one.type)) for one in kind])
    if pat.is_duration(kind) or pat.is_time(kind):
        return pa.int64()
    return given
