"""Columns of a few rows, gathered as Python lists.

The functions of `building` and `attributes` work in bulk: some sixty calls into Arrow, whatever a request holds. A short
request is walked in Python instead, and each column becomes an Arrow array once, at its end. Whoever walks raises
`Uncommon` at anything but the ordinary, and the work in bulk, which knows every case, begins anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.telemetry.columns.rows import RowSource, assembled
from penstock.telemetry.columns.schemas import ValueKind
from penstock.telemetry.wire.limits import DecodeLimits
from penstock.telemetry.wire.outline import Uncommon

__all__ = ["Entries", "FewMaps", "FewRows", "Uncommon", "entries_of", "is_short", "nanoseconds_of", "text_of"]

# Requests that have more bytes together are decoded faster in bulk.
_BYTES_MAX: Final = 16 * 1024
_INT64_MAX: Final = 2**63 - 1

# Keys in their order, values as text, and the kind of each value.
Entries: TypeAlias = tuple[Sequence[str], Sequence[str], Sequence[int]]
_NOTHING: Final[Entries] = ((), (), ())


def is_short(bodies: Sequence[bytes], limits: DecodeLimits) -> bool:
    """Whether the requests are few enough to be walked, and too small to pass a bound on rows or on the size of a value."""
    size = sum([len(body) for body in bodies])
    return size <= min(_BYTES_MAX, limits.rows_max, limits.value_bytes_max)


def nanoseconds_of(time: int) -> int | None:
    """A time of OTLP; zero means that there is none."""
    if time > _INT64_MAX:
        raise Uncommon
    return time or None


def entries_of(attributes: Any, limits: DecodeLimits) -> Entries:
    """Of OTLP's `KeyValue`s: sorted by key, and of a key that comes twice the last."""
    if not attributes:
        return _NOTHING
    if len(attributes) > limits.attributes_max:
        raise Uncommon
    keys: list[str] = []
    values: list[str] = []
    kinds: list[int] = []
    before, is_sorted = "", True
    for one in attributes:
        key, value = one.key, one.value
        # Most values are text, and most senders sort.
        text, kind = value.string_value, 0
        if not text:
            text, kind = text_of(value)
        is_sorted = is_sorted and (key > before or not keys)
        before = key
        keys.append(key)
        values.append(text)
        kinds.append(kind)
    if is_sorted:
        return keys, values, kinds
    last = {key: place for place, key in enumerate(keys)}
    order = [last[key] for key in sorted(last)]
    return [keys[at] for at in order], [values[at] for at in order], [kinds[at] for at in order]


def text_of(value: Any) -> tuple[str, int]:
    """Of an `AnyValue`: its text and its kind."""
    kind = value.WhichOneof("value")
    if kind is None:
        return "", ValueKind.EMPTY.value
    if kind not in _SPELLED:
        raise Uncommon
    number, spelled = _SPELLED[kind]
    return spelled(getattr(value, kind)), number


def _double_text(value: float) -> str:
    # As the decoder in bulk spells it.
    text: str = pa.scalar(value, pa.float64()).cast(pa.string()).as_py()
    return text


_SPELLED: Final[dict[str, tuple[int, Callable[[Any], str]]]] = {
    "string_value": (ValueKind.STRING.value, str),
    "int_value": (ValueKind.INT.value, str),
    "bool_value": (ValueKind.BOOL.value, lambda value: "true" if value else "false"),
    "double_value": (ValueKind.DOUBLE.value, _double_text),
}


class FewMaps:
    """A column of attributes, row by row."""

    def __init__(self) -> None:
        self._offsets = [0]
        self._keys: list[str] = []
        self._values: list[str] = []
        self._kinds: list[int] = []

    def add(self, entries: Entries, rows: int = 1) -> None:
        """The same entries for some rows."""
        keys, values, kinds = entries
        for _ in range(rows):
            self._keys += keys
            self._values += values
            self._kinds += kinds
            self._offsets.append(len(self._keys))

    def arrays(self) -> tuple[Any, Any]:
        """The maps, and the kinds of their values."""
        offsets: Any = pa.array(self._offsets, pa.int32())
        maps = pa.MapArray.from_arrays(offsets, pa.array(self._keys, pa.string()), pa.array(self._values, pa.string()))
        return maps, pa.ListArray.from_arrays(offsets, pa.array(self._kinds, pa.int8()))


class FewRows:
    """Columns by name, each a list that grows; columns of attributes by the name of the map and of its kinds."""

    def __init__(self) -> None:
        self._columns: defaultdict[str, list[Any]] = defaultdict(list)
        self._maps: dict[tuple[str, str], FewMaps] = {}

    def column(self, name: str) -> list[Any]:
        return self._columns[name]

    def maps(self, name: str, kinds: str) -> FewMaps:
        return self._maps.setdefault((name, kinds), FewMaps())

    def repeat(self, rows: int, **values: Any) -> None:
        """The same values for some rows."""
        for name, value in values.items():
            self._columns[name] += [value] * rows

    def assembled(self, schema: pa.Schema, rows: int, source: RowSource) -> pa.RecordBatch:
        columns = {name: pa.array(values, schema.field(name).type) for name, values in self._columns.items()}
        for (name, kinds), gathered in self._maps.items():
            columns[name], types = gathered.arrays()
            if kinds:
                columns[kinds] = types
        return assembled(schema, columns, rows, source)
