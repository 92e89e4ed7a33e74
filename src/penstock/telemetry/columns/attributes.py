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
from penstock.telemetry.columns.entries import EntryColumns, distinct_entries, key_ranks
from penstock.telemetry.columns.schemas import ValueKind
from penstock.telemetry.wire.limits import DecodeLimits
from penstock.telemetry.wire.outline import Uncommon, WireOutline, part_columns
from penstock.telemetry.wire.protobuf import parse
from penstock.telemetry.wire.text_pairs import text_pairs

__all__ = [
    "AttributeColumns",
    "any_values",
    "attribute_columns",
    "check_sizes",
    "coded_columns",
    "json_value",
    "sorted_codes",
    "string_map",
]

_NO_TEXTS: Final = pa.array([], pa.string())
_VALUE: Final = "value of an attribute"
_ENTRY: Final = WireOutline(frozenset({"array_value", "kvlist_value"}))
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
    """Of lists of OTLP's `KeyValue`, decoded or left as bytes."""
    entries, offsets = lists(key_values)
    limits.check_attributes(int(np.diff(offsets).max(initial=0)))
    if not len(entries):
        return AttributeColumns(offsets, _NO_TEXTS, _NO_TEXTS, np.zeros(0, np.int8))
    if pa.types.is_binary(entries.type):
        return coded_columns(offsets, *distinct_entries(entries, limits, _decoded_attributes))
    keys = field(entries, "key")
    values, kinds = any_values(field(entries, "value"), limits)
    check_sizes(keys, limits)
    return in_order(offsets, keys, values, kinds)


def _decoded_attributes(entries: Any, limits: DecodeLimits) -> EntryColumns:
    is_text, keys, values = text_pairs(entries, is_nested=True)
    kinds = np.zeros(len(entries), np.int8)
    if not is_text.all():
        found = part_columns(_common().KeyValue.DESCRIPTOR, entries.filter(pa.array(~is_text)), _ENTRY)
        others, kinds[~is_text] = any_values(field(found, "value"), limits)
        places = pa.array(np.where(is_text, np.cumsum(is_text) - 1, len(keys) + np.cumsum(~is_text) - 1))
        keys = pa.concat_arrays([keys, found.field("key")]).take(places)
        values = pa.concat_arrays([values, others]).take(places)
    check_sizes(keys, limits)
    check_sizes(values, limits)
    return EntryColumns(keys, values, kinds, key_ranks(keys))


def string_map(offsets: Ints, keys: Any, values: Any, limits: DecodeLimits) -> AttributeColumns:
    """Of labels that are strings already."""
    limits.check_attributes(int(np.diff(offsets).max(initial=0)))
    check_sizes(keys, limits)
    check_sizes(values, limits)
    return in_order(offsets, keys, values, np.zeros(len(keys), np.int8))


def coded_columns(offsets: Ints, distinct: EntryColumns, codes: Ints) -> AttributeColumns:
    """The same of distinct entries, and which of them each entry is."""
    ranks = distinct.ranks[codes]
    if not _rises(ranks, offsets):
        order, offsets = _sorted_entries(ranks, offsets)
        codes = codes[order]
    chosen = pa.array(codes)
    return AttributeColumns(offsets, distinct.keys.take(chosen), distinct.values.take(chosen), distinct.kinds[codes])


def sorted_codes(offsets: Ints, distinct: EntryColumns, codes: Ints) -> Ints:
    """Distinct entries in the order of their keys within each row; `Uncommon` where a row has a key twice."""
    ranks = distinct.ranks[codes]
    if _rises(ranks, offsets):
        return codes
    order, _ = _sorted_entries(ranks, offsets)
    if len(order) < len(codes):
        raise Uncommon
    return codes[order]


def in_order(offsets: Ints, keys: Any, values: Any, kinds: npt.NDArray[np.int8]) -> AttributeColumns:
    """Sorted by key within each row, each key once: the last one given."""
    if len(keys) == 0:
        return AttributeColumns(offsets, keys, values, kinds)
    ranks = key_ranks(keys)
    if _rises(ranks, offsets):
        return AttributeColumns(offsets, keys, values, kinds)
    order, offsets = _sorted_entries(ranks, offsets)
    chosen = pa.array(order)
    return AttributeColumns(offsets, keys.take(chosen), values.take(chosen), kinds[order])


def _rises(ranks: Ints, offsets: Ints) -> bool:
    """Whether each entry is above the one before it in its row."""
    falls = ranks[1:] <= ranks[:-1]
    starts = offsets[1:-1]
    falls[starts[(starts > 0) & (starts < len(ranks))] - 1] = False
    return not falls.any()


def _sorted_entries(ranks: Ints, offsets: Ints) -> tuple[Ints, Ints]:
    """Which entries, by rank within each row and of a rank the last one; and the offsets of the rows among them."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    places = rows * (int(ranks.max()) + 1) + ranks
    order = np.argsort(places, kind="stable")
    order = order[np.append(np.diff(places[order]) != 0, True)]
    new = np.zeros(len(offsets), np.int64)
    np.cumsum(np.bincount(rows[order], minlength=len(offsets) - 1), out=new[1:])
    return order, new


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
            ("array_value", ValueKind.JSON, lambda value: _rendered(_array(value, limits))),
            ("kvlist_value", ValueKind.JSON, lambda value: _rendered(_object(value, limits))),
        ):
            texts = _spelled(texts, open_, kinds, field(values, name), kind, render)
        kinds[open_] = ValueKind.EMPTY
        texts = pc.fill_null(texts, "")
    check_sizes(texts, limits)
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


def check_sizes(texts: Any, limits: DecodeLimits) -> None:
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


def _array(found: Any, limits: DecodeLimits) -> list[Any]:
    """Of an `ArrayValue` that is undecoded, or whose items are."""
    if isinstance(found, bytes):
        items = parse(_common().ArrayValue, found, _VALUE).values
    else:
        items = [parse(_common().AnyValue, item, _VALUE) for item in found["values"]]
    return [json_value(item, limits, 1) for item in items]


def _object(found: Any, limits: DecodeLimits) -> dict[str, Any]:
    """Of a `KeyValueList` that is undecoded, or decoded down to the entries or their values, as the decoder left it."""
    if isinstance(found, bytes):
        return {
            one.key: json_value(one.value, limits, 1) for one in parse(_common().KeyValueList, found, _VALUE).values
        }
    entries: dict[str, Any] = {}
    for item in found["values"]:
        if isinstance(item, bytes):
            entry = parse(_common().KeyValue, item, _VALUE)
            entries[entry.key] = json_value(entry.value, limits, 1)
        else:
            value = parse(_common().AnyValue, item["value"] or b"", _VALUE)
            entries[item["key"]] = json_value(value, limits, 1)
    return entries


def _rendered(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _common() -> Any:
    """The messages of attributes, imported when they are needed."""
    from opentelemetry.proto.common.v1 import common_pb2

    return common_pb2
