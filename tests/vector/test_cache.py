"""The cache: never over its bound, and the least recently used leave first."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from penstock.observability import names
from penstock.testing import RecordingObserver
from penstock.vector.cache import BlockCache


@dataclass
class Block:
    size_bytes: int


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), max_size=60))
def test_it_never_holds_more_than_its_bound(puts: list[tuple[int, int]]) -> None:
    cache = BlockCache(100)
    for name, size in puts:
        cache.put(name, Block(size))
        assert cache.size_bytes <= 100
    held = [block for name in range(10) if (block := cache.get(name, Block))]
    assert sum(block.size_bytes for block in held) == cache.size_bytes


def test_the_least_recently_used_leaves_first_and_is_counted() -> None:
    cache = BlockCache(100)
    for name in "abc":
        cache.put(name, Block(30))
    cache.get("a", Block)
    cache.touch(["b", "unknown"])
    cache.put("d", Block(30))
    assert [cache.get(name, Block) is not None for name in "abcd"] == [True, True, False, True]
    assert cache.evictions == 1


def test_a_block_of_more_than_half_is_not_kept() -> None:
    cache = BlockCache(100)
    cache.put("a", Block(51))
    assert len(cache) == 0


def test_it_reports_its_size_and_its_hits() -> None:
    observer = RecordingObserver()
    cache = BlockCache(100, observer=observer)
    cache.put("a", Block(30))
    cache.count(3, 1)
    assert observer.gauged(names.VECTOR_CACHE_BYTES) == 30
    assert observer.counted(names.VECTOR_CACHE_READS, outcome="hit") == 3
