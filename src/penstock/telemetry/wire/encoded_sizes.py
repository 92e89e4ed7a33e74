"""The fewest bytes that messages take, from their columns.

A decoder that meets an unknown field, a field that comes twice, a number spelled longer than need be or a default that
is written out reads less than there was. A body that has just the fewest bytes holds none of these: every field in it
is known, comes once and is spelled in the shortest way, which leaves two decoders nothing to differ on. So no value may
be counted with more bytes than its shortest spelling takes, or the surplus could hide something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

__all__ = ["fewest_bytes", "text_lengths"]

# The stubs of Arrow know few of the ways in which these can be called.
pc: Final[Any] = pyarrow.compute

_Sizes: TypeAlias = npt.NDArray[np.int64]

# From here on a number takes one byte more.
_VARINT_STEPS: Final = np.array([1 << (7 * places) for places in range(1, 10)], np.uint64)
_FIXED_BYTES: Final = {"double": 8, "fixed64": 8, "sfixed64": 8, "float": 4, "fixed32": 4, "sfixed32": 4}
_BITS: Final = {8: np.uint64, 4: np.uint32}
_ZIGZAG: Final = frozenset({"sint32", "sint64"})
_TEXTS: Final = frozenset({"string", "bytes"})


def fewest_bytes(descriptor: Any, batch: pa.RecordBatch) -> _Sizes | None:
    """Of each row, a message of this kind; None if one has two members of a choice, where there can be only one."""
    try:
        return _message(_layout(descriptor), batch, batch.num_rows)
    except _TwoOfAChoice:
        return None


class _TwoOfAChoice(Exception):
    """Members of a oneof beside each other."""


# Layouts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    kind: str
    tag_bytes: int
    is_repeated: bool
    has_presence: bool
    # None for scalars.
    message: Any


@dataclass(frozen=True, slots=True)
class _Layout:
    fields: tuple[_Field, ...]
    # Names of the members of each choice that has several.
    choices: tuple[tuple[str, ...], ...]


@lru_cache(maxsize=64)
def _layout(descriptor: Any) -> _Layout:
    fields = tuple(
        _Field(
            one.name,
            _kind_names()[one.type],
            int(_varints(np.array([one.number << 3], np.uint64))[0]),
            bool(one.is_repeated if hasattr(one, "is_repeated") else one.label == one.LABEL_REPEATED),
            bool(one.has_presence),
            one.message_type,
        )
        for one in descriptor.fields
    )
    choices = tuple(tuple(one.name for one in choice.fields) for choice in descriptor.oneofs if len(choice.fields) > 1)
    return _Layout(fields, choices)


@lru_cache(maxsize=1)
def _kind_names() -> dict[int, str]:
    from google.protobuf.descriptor import FieldDescriptor

    return {
        value: name.removeprefix("TYPE_").lower()
        for name, value in vars(FieldDescriptor).items()
        if name.startswith("TYPE_")
    }


# Sizes -----------------------------------------------------------------------------------------------------------


def _message(layout: _Layout, structs: Any, rows: int) -> _Sizes:
    """Bytes of each message, without its tag and length."""
    for choice in layout.choices:
        _check_choice([_column(structs, name) for name in choice], rows)
    total = np.zeros(rows, np.int64)
    for one in layout.fields:
        column = _column(structs, one.name)
        if one.is_repeated:
            if len(column.values):
                total += _repeated(one, column)
        elif not (one.has_presence and column.null_count == rows):
            total += _single(one, column)
    return total


def _column(structs: Any, name: str) -> Any:
    return structs.column(name) if isinstance(structs, pa.RecordBatch) else structs.field(name)


def _check_choice(members: list[Any], rows: int) -> None:
    used = [one for one in members if one.null_count < rows]
    if len(used) > 1 and (np.sum([np.asarray(one.is_valid()) for one in used], axis=0) > 1).any():
        raise _TwoOfAChoice


def _repeated(one: _Field, column: Any) -> _Sizes:
    items = column.flatten()
    offsets = np.asarray(column.offsets, np.int64)
    offsets = offsets - offsets[0]
    if one.message is not None or one.kind in _TEXTS:
        return _sums(one.tag_bytes + _delimited(_item_bytes(one, items)), offsets)
    sizes = _sums(_scalars(one, items), offsets)
    counts = np.diff(offsets)
    # A single number takes less without the length that stands before packed ones.
    packed = one.tag_bytes + _delimited(sizes)
    return np.where(counts > 1, packed, counts * one.tag_bytes + sizes)


def _item_bytes(one: _Field, items: Any) -> _Sizes:
    if one.message is None or pa.types.is_binary(items.type):
        # A message that was left undecoded is as long as it is.
        return text_lengths(items)
    return _message(_layout(one.message), items, len(items))


def _single(one: _Field, column: Any) -> _Sizes:
    if one.message is not None or one.kind in _TEXTS:
        lengths = _item_bytes(one, column)
        sizes = one.tag_bytes + _delimited(lengths)
        is_there = _given(column) if one.has_presence else lengths > 0
    elif one.has_presence:
        sizes, is_there = one.tag_bytes + _scalars(one, column), _given(column)
    else:
        # A default is left out; of doubles that is all bits zero, and not the other zero.
        sizes, is_there = one.tag_bytes + _scalars(one, column), _numbers(column) != 0
    return np.where(is_there, sizes, 0) if is_there is not None else sizes


def _given(column: Any) -> npt.NDArray[np.bool_] | None:
    """Which are there; None for all."""
    return np.asarray(column.is_valid()) if column.null_count else None


def _scalars(one: _Field, column: Any) -> Any:
    if size := _FIXED_BYTES.get(one.kind):
        return np.full(len(column), size, np.int64)
    if one.kind == "bool":
        return np.ones(len(column), np.int64)
    numbers = _numbers(column)
    if one.kind in _ZIGZAG:
        signed = numbers.view(np.int32 if numbers.itemsize == 4 else np.int64)
        numbers = ((signed << 1) ^ (signed >> (8 * numbers.itemsize - 1))).view(numbers.dtype)
    # Below zero, 32 bits are written as ten bytes, and five are read as the same.
    return _varints(numbers.astype(np.uint64))


def _numbers(column: Any) -> Any:
    """The bits of numbers, of which nulls are zero."""
    if column.null_count:
        column = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    found = column.to_numpy(zero_copy_only=False)
    return found if found.dtype == np.bool_ else found.view(_BITS[found.itemsize])


def text_lengths(texts: Any) -> _Sizes:
    """Of texts or bytes, in bytes; 0 for null."""
    buffer = texts.buffers()[1]
    if buffer is None or not len(texts):
        return np.zeros(len(texts), np.int64)
    bounds = np.frombuffer(buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return np.diff(bounds).astype(np.int64)


def _varints(numbers: Any) -> _Sizes:
    return np.asarray(np.searchsorted(_VARINT_STEPS, numbers, side="right") + 1, np.int64)


def _delimited(sizes: _Sizes) -> _Sizes:
    """With their length before them."""
    if sizes.max(initial=0) < 128:
        return sizes + 1
    return sizes + _varints(sizes.astype(np.uint64))


def _sums(sizes: _Sizes, offsets: _Sizes) -> _Sizes:
    """Of each list."""
    totals = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=totals[1:])
    return totals[offsets[1:]] - totals[offsets[:-1]]
