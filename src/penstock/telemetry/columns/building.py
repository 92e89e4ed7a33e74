"""Nested Arrow columns, opened up: lists to rows with the number of their parent, structs to fields. All in bulk."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from penstock.telemetry.columns.schemas import NANOSECONDS

__all__ = [
    "Ints",
    "constant",
    "counts64",
    "field",
    "hex_ids",
    "lists",
    "nanoseconds",
    "opened",
    "pc",
    "places",
    "relist",
    "taken",
    "timestamps",
    "to_ints",
    "to_lists",
]

# The stubs of Arrow know few of the ways in which these can be called.
pc: Final[Any] = pyarrow.compute

Ints: TypeAlias = npt.NDArray[np.int64]
_INT64_MAX: Final = 2**63 - 1
# Columns that are equal in all rows: so many are kept, of so many rows at most. Most take less than 200 KB.
_KEPT_MAX: Final = 32
_KEPT_ROWS_MAX: Final = 16384


def field(structs: Any, *path: str) -> Any:
    """A field of structs; null where a struct on the way is.

    Without nulls the field is at hand. A kernel would go through everything below the struct, which takes longer than
    all else for the small requests that most senders make.
    """
    for name in path:
        is_whole = isinstance(structs, pa.StructArray) and not structs.null_count
        structs = structs.field(name) if is_whole else pc.struct_field(structs, name)
    return structs


def opened(array: Any) -> tuple[Any, Ints]:
    """All items of lists, and for each the number of the list that it was in."""
    return pc.list_flatten(array), to_ints(pc.list_parent_indices(array))


def to_ints(array: Any) -> Ints:
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.int64)


def lists(array: Any) -> tuple[Any, Ints]:
    """All items of lists, and the offsets of the lists among them; a null list is an empty one."""
    if not array.null_count:
        bounds = np.asarray(array.offsets, np.int64)
        return array.flatten(), bounds - bounds[0]
    lengths = to_ints(pc.fill_null(pc.list_value_length(array), 0))
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return pc.list_flatten(array), offsets


def to_lists(values: Any, offsets: Ints) -> Any:
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def relist(offsets: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """For lists taken in another order, or several times: which items, and the offsets of the new lists."""
    lengths = (offsets[1:] - offsets[:-1])[rows]
    new = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths, out=new[1:])
    items = np.arange(new[-1]) + np.repeat(offsets[:-1][rows] - new[:-1], lengths)
    return items, new


def places(rows: Any, mask: Any = None) -> Any:
    """Numbers of rows as Arrow takes them; null under the mask."""
    return pa.array(rows, pa.int64(), mask=mask)


def taken(array: Any, rows: Ints) -> Any:
    return array.take(places(rows))


def constant(value: str | None, kind: Any, rows: int) -> Any:
    """The same value in all rows; None for null. Arrays do not change, so that small ones are made once for many requests."""
    return _kept_constant(value, kind, rows) if rows <= _KEPT_ROWS_MAX else _constant(value, kind, rows)


def _constant(value: str | None, kind: Any, rows: int) -> Any:
    return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)


_kept_constant: Final = lru_cache(maxsize=_KEPT_MAX)(_constant)


def timestamps(nanoseconds: Ints) -> Any:
    """Numbers as times, without a copy."""
    return pa.Array.from_buffers(NANOSECONDS, len(nanoseconds), [None, pa.py_buffer(nanoseconds.data)])


def counts64(array: Any) -> tuple[Any, npt.NDArray[np.bool_]]:
    """Unsigned numbers as signed ones, and which of them do not fit."""
    too_large = np.asarray(pc.fill_null(pc.greater(array, pa.scalar(_INT64_MAX, pa.uint64())), False))
    return array.cast(pa.int64(), safe=False), too_large


def nanoseconds(array: Any) -> tuple[Any, npt.NDArray[np.bool_]]:
    """Times of OTLP, and which of them are beyond the year 2262. Zero means that there is none."""
    numbers = np.asarray(array.fill_null(0) if array.null_count else array).view(np.int64)
    missing = numbers == 0
    if missing.all():
        return constant(None, NANOSECONDS, len(numbers)), missing & False
    times = pa.array(numbers, mask=missing).view(NANOSECONDS) if missing.any() else timestamps(numbers)
    return times, numbers < 0


def hex_ids(array: Any, size: int) -> tuple[Any, npt.NDArray[np.bool_]]:
    """Identities of `size` bytes as lower-case hexadecimal, null where empty or zero; and which are of another size."""
    lengths = to_ints(pc.fill_null(pc.binary_length(array), 0))
    wrong = (lengths != 0) & (lengths != size)
    whole = lengths == size
    data = b"".join(array.filter(pa.array(whole)).to_pylist()) if whole.any() else b""
    bits = np.frombuffer(data, np.uint8).reshape(-1, size)
    has_id = np.zeros(len(lengths), np.bool_)
    has_id[whole] = bits.any(axis=1)
    texts = np.frombuffer(data.hex().encode(), f"S{2 * size}")[bits.any(axis=1)]
    if not len(texts):
        return pa.nulls(len(lengths), pa.string()), wrong
    ids = pa.array(texts.tolist(), pa.binary()).cast(pa.string())
    return ids.take(places(np.cumsum(has_id) - 1, mask=~has_id)), wrong
