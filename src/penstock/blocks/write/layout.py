"""Where arriving rows go: which bucket, and when buckets are cut.

Rows whose keys only grow are stacked: new ones fill the last bucket and then begin others. Rows of any key are filed:
each bucket owns a range of keys, and one that has grown too large is cut into several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np

from penstock.blocks.format.arrays import Array, Indices
from penstock.blocks.format.keys import Shelf
from penstock.blocks.format.store_format import Block, KeyedBlock
from penstock.blocks.read.reader import BlockReader
from penstock.blocks.write.draft import BlockDraft

__all__ = ["BUCKET_BYTES", "file", "neighbours", "recut", "restack", "stack"]

# What a bucket is meant to hold: few enough bytes to read for a handful of rows, enough to be worth a request.
BUCKET_BYTES: Final = 128 << 10
_BUCKET_BYTES_MAX: Final = 2 * BUCKET_BYTES


K = TypeVar("K", bound=KeyedBlock)


def stack(draft: BlockDraft[Any], shelf: Shelf, content: Block, keys: Array) -> None:
    """Add rows, in the order of their keys, which are higher than all that are there, behind those of a shelf."""
    if not len(content):
        return
    capacity = _capacity(draft, shelf, content)
    start = 0
    if (last := draft.last_bucket(shelf)) and (room := capacity - last.rows) > 0:
        start = min(room, len(content))
        draft.append(shelf, last.low, content.take(slice(start)))
    if not start and len(content) <= capacity:
        draft.append(shelf, int(keys[0]), content)
        return
    for first in range(start, len(content), capacity):
        draft.append(shelf, int(keys[first]), content.take(slice(first, first + capacity)))


def restack(draft: BlockDraft[Any], shelf: Shelf, low: int, content: Block, keys: Array) -> None:
    """Put rows, in the order of their keys, in place of a bucket's, or begin one; keys lie before the next bucket.

    More rows than a bucket is meant to hold become several.
    """
    capacity = 2 * _capacity(draft, shelf, content)
    draft.replace(shelf, low, content.take(slice(capacity)))
    for first in range(capacity, len(content), capacity):
        draft.replace(shelf, int(keys[first]), content.take(slice(first, first + capacity)))


def _capacity(draft: BlockDraft[Any], shelf: Shelf, content: Block) -> int:
    """How many rows like these a bucket is meant to hold."""
    return max(1, BUCKET_BYTES * len(content) // max(1, draft.format.stored_bytes(shelf.family, content)))


async def file(draft: BlockDraft[Any], blocks: BlockReader, shelf: Shelf, content: K) -> None:
    """Add rows to the buckets that own their keys, and cut those that grow too large."""
    if not len(content):
        return
    directory = draft.base.directory(shelf)
    lows = directory.lows if len(directory) else np.zeros(1, np.uint64)
    places = directory.owners(content.keys) if len(directory) else np.zeros(len(content), np.int64)
    for place, arriving in _shares(content, places):
        low = int(lows[place])
        held = int(directory.bucket(low)["bytes"].sum())
        # A bucket this far over was cut before and is one key that very many rows have: let it grow.
        if (
            held + draft.format.stored_bytes(shelf.family, arriving) <= _BUCKET_BYTES_MAX
            or held > 4 * _BUCKET_BYTES_MAX
        ):
            draft.append(shelf, low, arriving)
            continue
        kind = type(content)
        stored = await blocks.contents(draft.base, shelf, [low], kind)
        draft.replace(shelf, low, None)
        recut(draft, shelf, low if place else 0, kind.merge([*stored.values(), arriving]))


def recut(draft: BlockDraft[Any], shelf: Shelf, low: int, content: KeyedBlock) -> None:
    """Replace a bucket by as many as its content needs, each with room to grow."""
    keys = np.sort(content.keys)
    count = min(len(keys), -(-draft.format.stored_bytes(shelf.family, content) // BUCKET_BYTES))
    edges = np.unique(keys[np.linspace(0, len(keys), count, endpoint=False).astype(np.int64)[1:]])
    lows = [low, *(int(edge) for edge in edges if edge > low)]
    places = np.searchsorted(np.array(lows, np.uint64), content.keys, side="right") - 1
    for place, share in _shares(content, places):
        draft.replace(shelf, lows[place], share)


def _shares(content: K, places: Indices) -> Iterator[tuple[int, K]]:
    """The rows of each place, in their order; content in the order of its keys is cut without being copied."""
    if len(places) and not np.any(places != places[0]):
        yield int(places[0]), content
        return
    if np.any(places[1:] < places[:-1]):
        order = np.argsort(places, kind="stable")
        content, places = content.take(order), places[order]
    bounds = np.flatnonzero(np.diff(places, prepend=-1, append=-1))
    for first, end in pairwise(bounds.tolist()):
        yield int(places[first]), content.take(slice(first, end))


def neighbours(lows: Sequence[int], sizes: Array) -> list[list[int]]:
    """Runs of adjacent buckets that fit into one together."""
    runs: list[list[int]] = []
    filled = _BUCKET_BYTES_MAX
    for low, size in zip(lows, sizes.tolist(), strict=True):
        if runs and filled + size <= BUCKET_BYTES:
            runs[-1].append(low)
            filled += size
        else:
            runs.append([low])
            filled = size
    return runs
