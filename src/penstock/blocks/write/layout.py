"""Where arriving rows go: which bucket, and when buckets are cut.

Rows whose keys only grow are stacked: new ones fill the last bucket and then begin others. Rows of any key are filed:
each bucket owns a range of keys, and one that has grown too large is cut into several. Buckets of hashes grow alike and
would all be cut in one commit, which then holds the whole shelf in memory: a commit cuts some, and the next ones the
others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Generic, TypeVar

import numpy as np

from penstock.blocks.format.arrays import Array, Indices
from penstock.blocks.format.keys import Shelf
from penstock.blocks.format.store_format import Block, KeyedBlock
from penstock.blocks.read.reader import BlockReader
from penstock.blocks.write.draft import GROUP_BYTES, BlockDraft, parted

__all__ = ["BUCKET_BYTES", "file", "neighbours", "recut", "restack", "stack"]

# What a bucket is meant to hold: few enough bytes to read for a handful of rows, enough to be worth a request.
BUCKET_BYTES: Final = 128 << 10
_BUCKET_BYTES_MAX: Final = 2 * BUCKET_BYTES
# A bucket that is to grow past this is cut, however many others are.
_BUCKET_BYTES_WAITING_MAX: Final = 3 * _BUCKET_BYTES_MAX
# A larger one was cut before, and is one key that very many rows have: it grows.
_BUCKET_BYTES_CUT_MAX: Final = 4 * _BUCKET_BYTES_MAX
# Of stored buckets, what a commit cuts at least; one with more rows cuts as much as arrives, so that cutting keeps up.
_CUT_BYTES_MIN: Final = 4 << 20


K = TypeVar("K", bound=KeyedBlock)


@dataclass(frozen=True, slots=True)
class _Grown(Generic[K]):
    """A bucket that has grown too large: its bytes without and with those arriving, and where its keys begin."""

    held: int
    size: int
    first: int
    low: int
    arriving: K


def stack(draft: BlockDraft[Any], shelf: Shelf, content: Block, keys: Array) -> None:
    """Append rows to a shelf, in key order; their keys must be higher than all existing ones."""
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
    grown: list[_Grown[K]] = []
    size = 0
    for place, arriving in _shares(content, places):
        low = int(lows[place])
        held = int(directory.bucket(low)["bytes"].sum())
        added = draft.format.stored_bytes(shelf.family, arriving)
        size += added
        if held + added <= _BUCKET_BYTES_MAX or held > _BUCKET_BYTES_CUT_MAX:
            draft.append(shelf, low, arriving)
        else:
            grown.append(_Grown(held, held + added, low if place else 0, low, arriving))
    cut: list[_Grown[K]] = []
    left = max(_CUT_BYTES_MIN, size)
    # The smallest first: the largest are those that one key fills, which cutting does not help.
    for bucket in sorted(grown, key=lambda bucket: (bucket.held, bucket.low)):
        if left <= 0 and bucket.size <= _BUCKET_BYTES_WAITING_MAX:
            draft.append(shelf, bucket.low, bucket.arriving)
        else:
            cut.append(bucket)
            left -= bucket.held
    await _cut_buckets(draft, blocks, shelf, cut)


async def _cut_buckets(draft: BlockDraft[Any], blocks: BlockReader, shelf: Shelf, buckets: Sequence[_Grown[K]]) -> None:
    """Cut buckets with what arrives for them; many are encoded on the way, so that few are in memory as they are."""
    groups = list(parted(buckets, lambda bucket: bucket.size, GROUP_BYTES))
    for group in groups:
        kind = type(group[0].arriving)
        stored = await blocks.contents(draft.base, shelf, [bucket.low for bucket in group], kind)

        if len(groups) > 1:
            await asyncio.to_thread(_cut_group, draft, shelf, group, stored, sealed=True)
        else:
            _cut_group(draft, shelf, group, stored, sealed=False)


def _cut_group(
    draft: BlockDraft[Any], shelf: Shelf, group: Sequence[_Grown[K]], stored: Mapping[int, K], *, sealed: bool
) -> None:
    for bucket in group:
        held = [stored[bucket.low]] if bucket.low in stored else []
        draft.replace(shelf, bucket.low, None)
        lows = recut(draft, shelf, bucket.first, type(bucket.arriving).merge([*held, bucket.arriving]))
        if sealed:
            draft.seal(shelf, lows)


def recut(draft: BlockDraft[Any], shelf: Shelf, low: int, content: KeyedBlock) -> list[int]:
    """Replace a bucket by as many as its content needs, each with room to grow; where these begin."""
    keys = np.sort(content.keys)
    count = min(len(keys), -(-draft.format.stored_bytes(shelf.family, content) // BUCKET_BYTES))
    edges = np.unique(keys[np.linspace(0, len(keys), count, endpoint=False).astype(np.int64)[1:]])
    lows = [low, *(int(edge) for edge in edges if edge > low)]
    places = np.searchsorted(np.array(lows, np.uint64), content.keys, side="right") - 1
    for place, share in _shares(content, places):
        draft.replace(shelf, lows[place], share)
    return lows


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
