"""Arrow types as Spark has them: no unsigned integers, no dictionaries, no views, times in microseconds.

A type of an extension is what it is stored as. Times of day and durations are whole numbers of their own unit.
"""

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
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
    pa.null(): pa.string(),
}
_LISTS: Final = (pat.is_list, pat.is_large_list, pat.is_fixed_size_list)


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """The same columns in types that Spark can take, every one nullable because Spark compares that too."""
    return pa.schema([pa.field(field.name, for_spark(field.type)) for field in schema])


def for_spark(given: pa.DataType) -> pa.DataType:
    kind: Any = given
    if kind in _PLAIN:
        found: pa.DataType = _PLAIN[kind]
        return found
    if isinstance(kind, pa.BaseExtensionType):
        return for_spark(kind.storage_type)
    if pat.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if pat.is_dictionary(kind):
        return for_spark(kind.value_type)
    if pat.is_map(kind):
        return pa.map_(for_spark(kind.key_type), for_spark(kind.item_type))
    if any(is_kind(kind) for is_kind in _LISTS):
        return pa.list_(for_spark(kind.value_type))
    if pat.is_struct(kind):
        return pa.struct([pa.field(one.name, for_spark(one.type)) for one in kind])
    if pat.is_decimal(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if pat.is_time32(kind):
        return pa.int32()
    if pat.is_duration(kind) or pat.is_time64(kind):
        return pa.int64()
    return given
