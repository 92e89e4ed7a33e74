"""Attributes of OTLP as maps of strings, with the kind of each value beside them; and back.

Entries are sorted by key, and of a key that comes twice the last counts: a map with equal keys is refused by most
readers of Parquet. Values that are arrays or lists of keys come undecoded from the fast decoder; they become JSON,
within a depth, by the protobuf project's own decoder.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.telemetry.columns.building import Ints, field, lists, pc, relist
from penstock.telemetry.columns.schemas import ValueKind
from penstock.telemetry.wire.limits import DecodeLimits
from penstock.telemetry.wire.protobuf import parse

__all__ = ["AttributeColumns", "any_values", "attribute_columns", "json_value", "string_map"]

_SIMPLE: Final = (
    ("bool_value", ValueKind.BOOL),
    ("int_value", ValueKind.INT),
    ("double_value", ValueKind.DOUBLE),
)


@dataclass(frozen=True, slots=True)
class AttributeColumns:
    """Attributes of many rows: the entries of all rows one behind the other, and where each row's begin."""

    offsets: Ints
    keys: Any
    values: Any
    kinds: npt.NDArray[np.int8]

    def map(self) -> Any:
        offsets: Any = pa.array(self.offsets, pa.int32())
        return pa.MapArray.from_arrays(offsets, self.keys, self.values)

    def types(self) -> Any:
        return pa.ListArray.from_arrays(pa.array(self.offsets, pa.int32()), pa.array(self.kinds, pa.int8()))

    def taken(self, rows: Ints) -> AttributeColumns:
        """For rows in another order, or several times."""
        items, offsets = relist(self.offsets, rows)
        places = pa.array(items)
        return AttributeColumns(offsets, self.keys.take(places), self.values.take(places), self.kinds[items])


def attribute_columns(key_values: Any, limits: DecodeLimits) -> AttributeColumns:
    """Of lists of OTLP's `KeyValue`."""
    entries, offsets = lists(key_values)
    limits.check_attributes(int(np.diff(offsets).max(initial=0)))
    keys = field(entries, "key")
    values, kinds = any_values(field(entries, "value"), limits)
    _check_sizes(keys, limits)
    return in_order(offsets, keys, values, kinds)


def string_map(offsets: Ints, keys: Any, values: Any, limits: DecodeLimits) -> AttributeColumns:
    """Of labels that are strings already."""
    limits.check_attributes(int(np.diff(offsets).max(initial=0)))
    _check_sizes(keys, limits)
    _check_sizes(values, limits)
    return in_order(offsets, keys, values, np.zeros(len(keys), np.int8))


def in_order(offsets: Ints, keys: Any, values: Any, kinds: npt.NDArray[np.int8]) -> AttributeColumns:
    """Sorted by key within each row, each key once: the last one given."""
    if len(keys) == 0:
        return AttributeColumns(offsets, keys, values, kinds)
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    encoded = pc.dictionary_encode(keys)
    names = encoded.dictionary.to_pylist()
    ranks = np.empty(len(names), np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    places = rows * len(names) + ranks[np.asarray(encoded.indices)]
    steps = np.diff(places)
    if np.all(steps > 0):
        return AttributeColumns(offsets, keys, values, kinds)
    order = np.argsort(places, kind="stable")
    is_last = np.append(np.diff(places[order]) != 0, True)
    order = order[is_last]
    new = np.zeros(len(offsets), np.int64)
    np.cumsum(np.bincount(rows[order], minlength=len(offsets) - 1), out=new[1:])
    chosen = pa.array(order)
    return AttributeColumns(new, keys.take(chosen), values.take(chosen), kinds[order])


def any_values(values: Any, limits: DecodeLimits) -> tuple[Any, npt.NDArray[np.int8]]:
    """Of OTLP's `AnyValue`: the texts, and the kind of each."""
    texts = field(values, "string_value")
    kinds = np.zeros(len(texts), np.int8)
    if texts.null_count:
        open_ = np.asarray(texts.is_null())
        for name, kind in _SIMPLE:
            texts = _filled(texts, open_, kinds, field(values, name), kind)
        for name, kind, render in (
            ("bytes_value", ValueKind.BYTES, lambda value: base64.b64encode(value).decode()),
            ("array_value", ValueKind.JSON, lambda value: _rendered(_array(value["values"], limits, 1))),
            ("kvlist_value", ValueKind.JSON, lambda value: _rendered(_object(value["values"], limits, 1))),
        ):
            texts = _spelled(texts, open_, kinds, field(values, name), kind, render)
        kinds[open_] = ValueKind.EMPTY
        texts = pc.fill_null(texts, "")
    _check_sizes(texts, limits)
    return texts, kinds


def _filled(texts: Any, open_: npt.NDArray[np.bool_], kinds: npt.NDArray[np.int8], values: Any, kind: ValueKind) -> Any:
    """Texts that are still missing, from values of one kind."""
    given = open_ & np.asarray(values.is_valid())
    if not given.any():
        return texts
    kinds[given] = kind
    open_ &= ~given
    return pc.coalesce(texts, values.cast(pa.string()))


def _spelled(
    texts: Any,
    open_: npt.NDArray[np.bool_],
    kinds: npt.NDArray[np.int8],
    values: Any,
    kind: ValueKind,
    render: Callable[[Any], str],
) -> Any:
    """The same for kinds that are rare, one by one."""
    given = open_ & np.asarray(values.is_valid())
    if not given.any():
        return texts
    kinds[given] = kind
    open_ &= ~given
    spelled = pa.array([render(value) for value in values.filter(pa.array(given)).to_pylist()], pa.string())
    return pc.replace_with_mask(texts, pa.array(given), spelled)


def _check_sizes(texts: Any, limits: DecodeLimits) -> None:
    longest = pc.max(pc.binary_length(texts)).as_py()
    limits.check_value(longest or 0)


# Values within values -----------------------------------------------------------------------------------------


def json_value(value: Any, limits: DecodeLimits, depth: int = 0) -> Any:
    """What JSON makes of an `AnyValue`; bytes become base 64."""
    if depth > limits.depth_max:
        raise InvalidInput(
            f"the value of an attribute is nested more than {limits.depth_max} deep",
            "",
            "flatten it, or raise depth_max",
        )
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [json_value(one, limits, depth + 1) for one in value.array_value.values]
    if kind == "kvlist_value":
        return {one.key: json_value(one.value, limits, depth + 1) for one in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return None if kind is None else getattr(value, kind)


def _array(items: list[bytes], limits: DecodeLimits, depth: int) -> list[Any]:
    message = _any_value()
    return [json_value(parse(message, item, "value of an attribute"), limits, depth) for item in items]


def _object(items: list[Any], limits: DecodeLimits, depth: int) -> dict[str, Any]:
    """Entries are undecoded, or decoded down to the value, as deep as the fast decoder went."""
    found: dict[str, Any] = {}
    for item in items:
        if isinstance(item, bytes):
            entry = parse(_key_value(), item, "value of an attribute")
            found[entry.key] = json_value(entry.value, limits, depth)
        else:
            value = parse(_any_value(), item["value"] or b"", "value of an attribute")
            found[item["key"]] = json_value(value, limits, depth)
    return found


def _rendered(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _any_value() -> Any:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue

    return AnyValue


def _key_value() -> Any:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue

    return KeyValue
