"""Rows as callers get them back: names, vectors, texts and attributes of internal ids, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.blocks import BlockReader, Damage, Shelf
from penstock.errors import InvalidInput
from penstock.vector.arrays import Column, Ids
from penstock.vector.format.keys import Family
from penstock.vector.format.state import CollectionState
from penstock.vector.read.lookup import find_column
from penstock.vector.read.vectors import find_vectors

__all__ = ["COLUMNS", "check_columns", "read_columns"]

COLUMNS: Final = ("id", "vector", "text", "attributes")
_NAMES: Final = Shelf(Family.NAMES)
_TEXTS: Final = Shelf(Family.TEXTS)


def check_columns(wanted: object) -> tuple[str, ...]:
    """The names of columns; refuses one that rows do not have, and one alone that is not in a list."""
    if isinstance(wanted, str) or not isinstance(wanted, Iterable):
        raise InvalidInput(f"columns = {wanted!r:.60}", "they are a list of names", 'write ["text"]')
    names = []
    for name in wanted:
        if not isinstance(name, str) or name not in COLUMNS:
            raise InvalidInput(f"column {name!r:.60}", f"rows have the columns {', '.join(COLUMNS)}")
        names.append(name)
    return tuple(names)


async def read_columns(
    blocks: BlockReader, state: CollectionState, ids: Ids, wanted: Sequence[str], damage: Damage | None = None
) -> dict[str, Column]:
    """The wanted columns of rows, in the order of `ids`."""
    columns: dict[str, Column] = {}
    for name in check_columns(wanted):
        if name == "id":
            columns[name] = await find_column(blocks, state, _NAMES, ids, pa.string(), damage)
        elif name == "text":
            columns[name] = await find_column(blocks, state, _TEXTS, ids, pa.string(), damage)
        elif name == "vector":
            columns[name] = await _vectors(blocks, state, ids, damage)
        else:
            columns[name] = await _attributes(blocks, state, ids, damage)
    return columns


async def _vectors(blocks: BlockReader, state: CollectionState, ids: Ids, damage: Damage | None) -> Column:
    vectors, missing = await find_vectors(blocks, state, ids, damage)
    mask = np.zeros(len(ids), np.bool_)
    mask[missing] = True
    values = pa.array(vectors.reshape(-1))
    return pa.FixedSizeListArray.from_arrays(values, state.dimensions, mask=pa.array(mask))


async def _attributes(blocks: BlockReader, state: CollectionState, ids: Ids, damage: Damage | None) -> Column:
    fields = {}
    for record in state.head.attributes:
        shelf = Shelf(Family.COLUMN, record.number)
        fields[record.name] = await find_column(blocks, state, shelf, ids, record.type.arrow, damage)
    if not fields:
        return pa.array([{}] * len(ids), pa.struct([]))
    return pa.StructArray.from_arrays(list(fields.values()), names=list(fields))
