"""The cache: never over its bound, those that nobody used lately leave first, and nobody holds on to them."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from penstock.blocks import BlockCache
from penstock.observability import names
from penstock.testing import RecordingObserver


@dataclass
class Block:
    size_bytes: int


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), max_size=60))
def test_it_never_holds_more_than_its_bound(puts: list[tuple[int, int]]) -> None:
    cache = BlockCache(100, store="s")
    for name, size in puts:
        cache.put(name, Block(size))
        assert cache.size_bytes <= 100
    held = [entry.block for name in range(10) if (entry := cache.get(name, Block))]
    assert sum(block.size_bytes for block in held) == cache.size_bytes


def test_a_block_that_was_used_stays_and_the_oldest_other_leaves_and_is_counted() -> None:
    cache = BlockCache(100, store="s")
    for name in "abc":
        cache.put(name, Block(30))
    held = cache.get("b", Block)
    assert held is not None
    cache.get("a", Block)
    cache.put("d", Block(30))
    assert [cache.get(name, Block) is not None for name in "abcd"] == [True, True, False, True]
    assert cache.evictions == 1


def test_a_reader_that_holds_an_entry_marks_its_block_as_used() -> None:
    cache = BlockCache(100, store="s")
    for name in "abc":
        cache.put(name, Block(30))
    held = cache.get("a", Block)
    assert held is not None
    cache.put("d", Block(30))
    held.used = True
    cache.put("e", Block(30))
    assert [cache.get(name, Block) is not None for name in "abcde"] == [True, False, False, True, True]


def test_blocks_that_are_all_in_use_still_make_room() -> None:
    cache = BlockCache(100, store="s")
    for name in "abcdef":
        cache.put(name, Block(30))
        cache.get(name, Block)
    assert cache.size_bytes == 90
    assert cache.get("f", Block) is not None


def test_an_entry_lets_go_of_a_block_that_leaves_and_of_no_other() -> None:
    """Readers hold entries: a block that lived on in one would take more memory than the bound allows."""
    cache = BlockCache(100, store="s")
    for name in "ab":
        cache.put(name, Block(40))
    first, second = cache.get("a", Block), cache.get("b", Block)
    assert first is not None
    assert second is not None
    first.used = second.used = False
    cache.put("c", Block(40))
    assert first.block is None
    assert second.block == Block(40)


def test_a_block_of_more_than_half_is_not_kept() -> None:
    cache = BlockCache(100, store="s")
    cache.put("a", Block(51))
    assert len(cache) == 0


def test_it_reports_its_size_and_its_hits() -> None:
    observer = RecordingObserver()
    cache = BlockCache(100, store="s", observer=observer)
    cache.put("a", Block(30))
    cache.count(3, 1)
    assert observer.gauged(names.BLOCKS_CACHE_BYTES, store="s") == 30
    assert observer.counted(names.BLOCKS_CACHE_READS, store="s", outcome="hit") == 3
