"""Memory in slabs: pieces never overlap, return when nobody looks at them, and do not add up."""

from __future__ import annotations

import gc
import threading
from collections import deque

import numpy as np
import pytest

from penstock.vector.read import slabs as module
from penstock.vector.read.slabs import Slabs

MIB = 1 << 20


def test_pieces_are_disjoint_and_keep_what_is_written() -> None:
    slabs = Slabs()
    sizes = np.random.default_rng(1).integers(1, 400_000, 200).tolist()
    pieces = [slabs.room(size) for size in sizes]
    for number, piece in enumerate(pieces):
        piece[:] = number % 251
    assert [len(piece) for piece in pieces] == sizes
    assert all((piece == number % 251).all() for number, piece in enumerate(pieces))


@pytest.mark.slow
def test_a_piece_lives_as_long_as_any_view_of_it() -> None:
    slabs = Slabs()
    view = slabs.room(MIB).view(np.float32).reshape(64, -1)[5, 3:]
    view[:] = 7
    gc.collect()
    others = [slabs.room(MIB) for _ in range(40)]
    for other in others:
        other[:] = 1
    assert (view == 7).all()


def test_memory_is_used_again_and_an_empty_slab_is_unmapped() -> None:
    slabs = Slabs()
    for _ in range(200):
        slabs.room(MIB)[:] = 1
    assert slabs.mapped_bytes <= 16 * MIB
    held = [slabs.room(4 * MIB) for _ in range(16)]
    assert slabs.mapped_bytes >= 64 * MIB
    del held
    slabs.room(MIB)
    assert slabs.mapped_bytes <= 16 * MIB


def test_blocks_that_come_and_go_take_little_more_than_what_is_kept() -> None:
    """As a cache does it: the oldest go first, a few stay, and sizes differ."""
    slabs, random = Slabs(), np.random.default_rng(2)
    kept: deque[np.ndarray] = deque()
    size = 0
    for _ in range(5000):
        block = slabs.room(int(random.integers(20_000, 200_000)))
        size += len(block)
        kept.append(block)
        while size > 64 * MIB:
            oldest = kept.popleft()
            if random.random() < 0.2:
                kept.append(oldest)
                continue
            size -= len(oldest)
        del block
    assert slabs.mapped_bytes <= 1.5 * 64 * MIB


def test_a_piece_may_be_larger_than_a_slab() -> None:
    slabs = Slabs()
    piece = slabs.room(40 * MIB + 1)
    piece[-1] = 9
    assert len(piece) == 40 * MIB + 1


def test_small_pieces_are_ordinary_memory() -> None:
    slabs = Slabs()
    assert len(slabs.room(100)) == 100
    assert len(slabs.room(0)) == 0
    assert slabs.mapped_bytes == 0


def test_a_system_without_huge_pages_gives_ordinary_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HUGE", None)
    slabs = Slabs()
    assert len(slabs.room(MIB)) == MIB
    assert slabs.mapped_bytes == 0


def test_threads_share_slabs() -> None:
    slabs = Slabs()
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(200):
            piece = slabs.room(100_000)
            piece[:] = number
            if not (piece == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
