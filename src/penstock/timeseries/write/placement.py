"""Where arriving rows of a period go: which bucket of the directory, and when buckets are cut.

Buckets never reach over the end of their period, so that one can be folded and removed by itself. Rows whose keys only
grow are stacked; rows of any key are filed: each bucket owns a range of keys, and one that has grown too large is cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyroaring

from penstock.blocks import Block, BlockReader, KeyedBlock, Shelf
from penstock.errors import Corrupt
from penstock.timeseries.arrays import Indices, Words
from penstock.timeseries.format.index_block import IndexBlock
from penstock.timeseries.format.keys import hour_key, keys_of
from penstock.timeseries.format.presence_block import PresenceBlock
from penstock.timeseries.format.sample_block import BLOCK_SAMPLES, SampleBlock
from penstock.timeseries.format.state import INDEX, PRESENCE, SAMPLES
from penstock.timeseries.offload import offload
from penstock.timeseries.write.draft import TenantDraft

__all__ = ["file_index", "file_presence", "file_samples", "place_samples", "stack_series"]

# What a bucket is meant to hold: few enough bytes to read for a handful of series, enough to be worth a request.
_BUCKET_BYTES: Final = 128 << 10
_BUCKET_BYTES_MAX: Final = 2 * _BUCKET_BYTES
# Samples of a bucket before it is cut in pieces of `BLOCK_SAMPLES`.
_BUCKET_SAMPLES_MAX: Final = 4 * BLOCK_SAMPLES


def stack_series(draft: TenantDraft, shelf: Shelf, hour: int, content: Block, keys: Words) -> None:
    """Add rows of new series, whose ids are higher than all that are there."""
    capacity = max(1, _BUCKET_BYTES * len(content) // max(1, draft.format.stored_bytes(shelf.family, content)))
    lows = draft.base.lows(shelf, hour)
    start = 0
    if len(lows):
        held = int(draft.base.directory(shelf).bucket(int(lows[-1]))["rows"].sum())
        start = min(max(capacity - held, 0), len(content))
        draft.append(shelf, int(lows[-1]), content.take(slice(start)))
    for first in range(start, len(content), capacity):
        draft.append(shelf, int(keys[first]), content.take(slice(first, first + capacity)))


async def file_samples(draft: TenantDraft, blocks: BlockReader, content: SampleBlock) -> None:
    """Add samples to the buckets of their series, and cut those that grow too large."""
    lows = draft.base.lows(SAMPLES, content.hour)
    if not len(lows):
        place_samples(draft, hour_key(content.hour), content)
        return
    directory = draft.base.directory(SAMPLES)
    for place, first, end in _runs(draft.base.owners(SAMPLES, content.hour, keys_of(content.hour, content.ids))):
        low, share = int(lows[place]), content.series(first, end)
        if int(directory.bucket(low)["rows"].sum()) + len(share) <= _BUCKET_SAMPLES_MAX:
            draft.append(SAMPLES, low, share)
            continue
        try:
            stored = await blocks.contents(draft.base, SAMPLES, [low], SampleBlock)
        except Corrupt:
            # What cannot be read is left where it is; what arrives lies beside it.
            draft.append(SAMPLES, low, share)
            continue
        draft.replace(SAMPLES, low, None)
        place_samples(draft, low, SampleBlock.merge([*stored.values(), share]))


def place_samples(draft: TenantDraft, low: int, content: SampleBlock) -> None:
    """Begin buckets with samples, cut between series; the first bucket is named `low`."""
    places = np.unique(np.searchsorted(content.offsets, np.arange(0, len(content), BLOCK_SAMPLES)))
    for number, (first, end) in enumerate(pairwise([*places.tolist(), len(content.ids)])):
        if end > first:
            key = int(keys_of(content.hour, content.ids[first : first + 1])[0]) if number else low
            draft.append(SAMPLES, key, content.series(first, end))


async def file_presence(
    draft: TenantDraft, blocks: BlockReader, hour: int, arriving: pyroaring.BitMap, present: dict[int, pyroaring.BitMap]
) -> None:
    """Add the series that an hour had no samples of. `present` has the series of hours in memory, and gets them too."""
    low = hour_key(hour)
    known = present.pop(hour, None)
    try:
        if known is None:
            found = await blocks.contents(draft.base, PRESENCE, [low], PresenceBlock)
            known = found[low].ids if low in found else pyroaring.BitMap()
    except Corrupt:
        # Whatever was there: that these are is written down once more.
        draft.append(PRESENCE, low, PresenceBlock(arriving))
        return
    fresh = arriving - known
    draft.append(PRESENCE, low, PresenceBlock(fresh))
    present[hour] = known | fresh if fresh else known


async def file_index(draft: TenantDraft, blocks: BlockReader, hour: int, content: IndexBlock) -> None:
    """Add rows of labels to the buckets that own them, and cut those that grow too large."""
    lows = draft.base.lows(INDEX, hour)
    if not len(lows):
        _recut(draft, INDEX, hour_key(hour), content)
        return
    directory = draft.base.directory(INDEX)
    for place, share in _shares(content, draft.base.owners(INDEX, hour, content.keys)):
        low = int(lows[place])
        held = int(directory.bucket(low)["bytes"].sum())
        arriving = draft.format.stored_bytes(INDEX.family, share)
        # A bucket this far over was cut before and is one key that very many rows have: let it grow.
        if held + arriving <= _BUCKET_BYTES_MAX or held > 4 * _BUCKET_BYTES_MAX:
            draft.append(INDEX, low, share)
            continue
        try:
            stored = await blocks.contents(draft.base, INDEX, [low], IndexBlock)
        except Corrupt:
            draft.append(INDEX, low, share)
            continue
        draft.replace(INDEX, low, None)
        merged = await offload(sum(map(len, stored.values())), IndexBlock.merge, [*stored.values(), share])
        _recut(draft, INDEX, low, merged)


def _recut(draft: TenantDraft, shelf: Shelf, low: int, content: KeyedBlock) -> None:
    keys = np.sort(content.keys)
    count = min(len(keys), -(-draft.format.stored_bytes(shelf.family, content) // _BUCKET_BYTES))
    edges = np.unique(keys[np.linspace(0, len(keys), count, endpoint=False).astype(np.int64)[1:]])
    lows = [low, *(int(edge) for edge in edges if edge > low)]
    for place, share in _shares(content, np.searchsorted(np.array(lows, np.uint64), content.keys, side="right") - 1):
        draft.append(shelf, lows[max(place, 0)], share)


def _shares(content: Any, places: Indices) -> Iterator[tuple[int, Any]]:
    """The rows of each place, in their order."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    for place, first, end in _runs(ordered):
        yield place, content.take(order[first:end])


def _runs(places: Indices) -> Iterator[tuple[int, int, int]]:
    """Runs of equal places: the place, and where its run begins and ends."""
    bounds = np.flatnonzero(np.diff(places, prepend=-1, append=-1))
    for first, end in pairwise(bounds.tolist()):
        yield int(places[first]), first, end
