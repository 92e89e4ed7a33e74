"""All rows of a collection, or those that a filter selects, page by page in the order of their internal ids.

That is the order in which rows were last written, and in which they lie in their blocks: each block is read once,
however many rows there are. A page is whole or it is an error that names the damaged block.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.blocks import BlockReader
from penstock.vector.arrays import Ids
from penstock.vector.bounds import whole_number
from penstock.vector.filter import Filter
from penstock.vector.format.idset import IdSet
from penstock.vector.format.keys import ROW_FAMILIES
from penstock.vector.format.state import CollectionState
from penstock.vector.read.row_columns import check_columns, read_columns
from penstock.vector.read.select import select_rows

__all__ = ["PAGE_ROWS", "ListRequest", "id_pages", "list_rows"]

# A few megabytes of texts and vectors: large enough for whole blocks, small enough to hold several.
PAGE_ROWS: Final = 1_000
_PAGE_ROWS_MAX: Final = 100_000
# Ids looked at in one step, so that a listing needs no more memory than a page and this window.
_WINDOW_IDS: Final = 1 << 18


class ListRequest:
    """What is asked: which rows, which of their columns, and how many at a time."""

    __slots__ = ("columns", "page_rows", "where")

    def __init__(self, where: Filter | None, columns: Sequence[str], page_rows: int) -> None:
        self.where = where
        self.columns = check_columns(columns)
        self.page_rows = whole_number(
            "page_rows", page_rows, 1, _PAGE_ROWS_MAX, f"a page has 1 to {_PAGE_ROWS_MAX} rows"
        )


async def list_rows(blocks: BlockReader, state: CollectionState, request: ListRequest) -> AsyncIterator[pa.Table]:
    """The visible rows of one state that the request selects. No rows make no page."""
    state.require(ROW_FAMILIES)
    if not state.head.next_id:
        return
    chosen = state.visible
    if request.where is not None:
        chosen = await select_rows(blocks, state, request.where, None)
    for ids in id_pages(chosen, request.page_rows):
        yield pa.table(await read_columns(blocks, state, ids, request.columns))


def id_pages(members: IdSet, page_rows: int, window: int = _WINDOW_IDS) -> Iterator[Ids]:
    """The members of a set in order, `page_rows` at a time; only the last page may have fewer."""
    left = np.empty(0, np.int64)
    for start in range(0, members.limit, window):
        ids = np.concatenate([left, members.ids(start, start + window)])
        whole = len(ids) // page_rows * page_rows
        yield from ids[:whole].reshape(-1, page_rows)
        left = ids[whole:]
    if len(left):
        yield left
