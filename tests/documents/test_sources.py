import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.documents.sources import BlockSource, BytesSource
from penstock.errors import Conflict, InvalidInput

DATA = bytes(range(256)) * 4


class CountingSource(BytesSource):
    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.reads: list[tuple[int, int]] = []

    def read(self, start: int, end: int) -> bytes:
        self.reads.append((start, end))
        return super().read(start, end)


class ShrunkSource(BytesSource):
    """Claims the size of before, serves the bytes of after."""

    @property
    def size(self) -> int:
        return super().size + 10


@given(
    st.integers(1, 300), st.integers(1, 5), st.lists(st.tuples(st.integers(0, 1024), st.integers(0, 1024)), max_size=8)
)
def test_any_block_size_serves_any_range(block_bytes, kept, ranges):
    source = BlockSource(BytesSource(DATA), block_bytes=block_bytes, blocks_kept=kept)
    for left, right in ranges:
        start, end = min(left, right), max(left, right)
        assert source.read(start, end) == DATA[start:end]


def test_a_walk_forward_asks_for_each_block_once():
    beneath = CountingSource(DATA)
    source = BlockSource(beneath, block_bytes=100)
    for start in range(0, 1000, 30):
        source.read(max(0, start - 40), start + 30)
    assert beneath.reads == [(n * 100, min(n * 100 + 100, 1024)) for n in range(11)]


def test_an_object_that_shrank_while_it_was_read_is_a_conflict():
    with pytest.raises(Conflict, match="changed while it was read"):
        BlockSource(ShrunkSource(DATA), block_bytes=500).read(0, 1030)


def test_a_block_of_nothing_is_refused():
    with pytest.raises(InvalidInput):
        BlockSource(BytesSource(DATA), block_bytes=0)
