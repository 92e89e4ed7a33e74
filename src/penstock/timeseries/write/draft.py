"""A commit to one tenant in the making. Blocks of samples are cut by what they really take, and encoded beside the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyroaring

from penstock.blocks import Block, BlockDraft, Operations, Shelf
from penstock.timeseries.fingerprints import Fingerprints
from penstock.timeseries.format.keys import SeriesFamily
from penstock.timeseries.format.sample_block import SampleBlock
from penstock.timeseries.format.state import SAMPLES, TenantHead, TenantState
from penstock.timeseries.format.store_format import FORMAT
from penstock.timeseries.offload import offload

__all__ = ["VALUE_BYTES", "TenantDraft", "fitting"]

# What a value of the store may take.
VALUE_BYTES: Final = 256 << 10
# Blocks that are encoded at a time.
_ENCODED_AT_ONCE: Final = 4


class TenantDraft(BlockDraft[TenantState]):
    """Changes to one tenant."""

    def __init__(self, base: TenantState) -> None:
        super().__init__(FORMAT, base)
        self._encoded: set[int] = set()

    async def encode(self) -> None:
        """Merge, cut and encode the blocks of samples that arrive."""
        turns = asyncio.Semaphore(_ENCODED_AT_ONCE)

        async def one(bucket: object, arriving: Sequence[SampleBlock]) -> None:
            async with turns:
                pieces = await offload(sum(map(len, arriving)), fitting, arriving)
            bucket.arriving = list(pieces)  # type: ignore[attr-defined] # a bucket of the draft, which has no public name
            self._encoded.update(map(id, pieces))

        waiting = [
            one(bucket, bucket.arriving)  # type: ignore[arg-type] # this shelf holds blocks of samples
            for bucket in self._buckets.get(SAMPLES, {}).values()
            if bucket.arriving
        ]
        await asyncio.gather(*waiting)

    def _cut(self, shelf: Shelf, arriving: list[Block]) -> list[Block]:
        if shelf.family is SeriesFamily.SAMPLES and all(id(block) in self._encoded for block in arriving):
            return arriving
        return super()._cut(shelf, arriving)

    def state_after(
        self,
        head: TenantHead,
        resident: dict[int, Fingerprints] | None = None,
        present: dict[int, pyroaring.BitMap] | None = None,
    ) -> tuple[TenantState, Operations]:
        """The state after the commit, and the operations that make it so."""
        done = self.finish(head)
        state = replace(
            self.base,
            head=done.head,
            directories=done.directories,
            resident=self.base.resident if resident is None else resident,
            present=self.base.present if present is None else present,
            lost={},
            remade=frozenset(),
        )
        return state, done.operations


def fitting(parts: Sequence[SampleBlock]) -> list[SampleBlock]:
    """Blocks as one, encoded and cut in halves until each fits into a value."""
    return _halved(SampleBlock.merge(parts))


def _halved(block: SampleBlock) -> list[SampleBlock]:
    if block.stored_bytes <= VALUE_BYTES or len(block) < 2:
        return [block]
    middle = len(block) // 2
    if len(block.ids) > 1:
        # Between two series, so that a series is in one block if it fits.
        cut = int(np.clip(np.searchsorted(block.offsets, middle), 1, len(block.ids) - 1))
        return [*_halved(block.series(0, cut)), *_halved(block.series(cut, len(block.ids)))]
    return [*_halved(block.take(slice(0, middle))), *_halved(block.take(slice(middle, len(block))))]
