"""Many Roaring bitmaps at once, in their portable format: most labels of churning series have one series each.

A bitmap of one number is 18 bytes that can be written without the library: the cookie of a bitmap without runs, one
container, its key (the high 16 bits) and its size less one, where it begins, and the low 16 bits.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyroaring

from penstock.timeseries.arrays import Column, Ids, Indices, buffer_of, bytes_column, taken

__all__ = ["bitmaps_of", "single_ids"]

_SINGLE: Final = np.dtype(
    [("cookie", "<u4"), ("containers", "<u4"), ("key", "<u2"), ("size", "<u2"), ("start", "<u4"), ("low", "<u2")]
)
_COOKIE: Final = 12346


def bitmaps_of(ids: Ids, starts: Indices) -> Column:
    """The bitmaps of groups of ids that begin at `starts`, as a column of bytes."""
    single = np.diff(starts, append=len(ids)) == 1
    some = ids[starts[single]]
    written = np.zeros(len(some), _SINGLE)
    written["cookie"], written["containers"], written["start"] = _COOKIE, 1, 16
    written["key"], written["low"] = some >> 16, some & 0xFFFF
    bounds = [*starts.tolist(), len(ids)]
    others = np.flatnonzero(~single)
    made = [pyroaring.BitMap(ids[bounds[place] : bounds[place + 1]]).serialize() for place in others.tolist()]
    offsets = np.arange(0, written.nbytes + 1, _SINGLE.itemsize, dtype=np.int32)
    singles = pa.Array.from_buffers(pa.binary(), len(some), [None, buffer_of(offsets), buffer_of(written)])
    places = np.empty(len(starts), np.int64)
    places[np.concatenate([np.flatnonzero(single), others])] = np.arange(len(starts))
    return taken(pa.concat_arrays([singles, bytes_column(made, pa.binary())]), places)


def single_ids(bitmaps: Column, rows: Indices) -> tuple[Ids, Indices]:
    """The ids of those rows whose bitmaps have one number and no runs, and the other rows."""
    starts = np.frombuffer(bitmaps.buffers()[1], np.int32, len(bitmaps) + 1, 4 * bitmaps.offset).astype(np.int64)
    body = np.frombuffer(bitmaps.buffers()[2] or b"", np.uint8)
    fits = np.diff(starts)[rows] == _SINGLE.itemsize
    some = rows[fits]
    read = body[starts[some][:, None] + np.arange(_SINGLE.itemsize)].reshape(-1).view(_SINGLE)
    single = (read["cookie"] == _COOKIE) & (read["containers"] == 1) & (read["size"] == 0) & (read["start"] == 16)
    ids = (read["key"][single].astype(np.uint32) << 16) | read["low"][single]
    return ids, np.sort(np.concatenate([rows[~fits], some[~single]]))
