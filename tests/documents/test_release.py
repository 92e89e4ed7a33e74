import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.documents.chunker import Chunker, ChunkingConfig, Progress
from penstock.documents.release import CellRelease
from penstock.documents.sources import MemorySource
from penstock.errors import AtCapacity

CHUNKER = Chunker(
    ChunkingConfig(target_tokens=40, max_tokens=64, overlap_tokens=8, counter="estimate", cell_bytes=1024)
)
DATA = b"\n\n".join(b"paragraph %d is about cats and windows" % n for n in range(400))
CELLS = [CHUNKER.cell(MemorySource(DATA), cell) for cell in range(CHUNKER.cell_count(len(DATA)))]
IN_ORDER = CHUNKER.chunk(DATA)


@given(st.randoms(use_true_random=False))
def test_cells_in_any_order_give_the_chunks_of_reading_forward(order: random.Random):
    cells = CELLS * 2  # every cell comes twice
    order.shuffle(cells)
    release = CellRelease()
    assert [chunk for cell in cells for chunk in release.offer(cell)] == IN_ORDER


def test_progress_points_at_the_next_cells_first_anchor():
    release = CellRelease()
    chunks = release.offer(CELLS[0])
    assert release.progress == Progress(len(chunks), CELLS[1].start)
    assert list(CHUNKER.document(MemorySource(DATA), release.progress)) == IN_ORDER[len(chunks) :]


def test_a_release_that_starts_in_the_middle_goes_on_numbering():
    before = sum(len(cell.chunks) for cell in CELLS[:3])
    release = CellRelease(3, before)
    assert [c for cell in CELLS[3:] for c in release.offer(cell)] == IN_ORDER[before:]
    assert release.next_cell == len(CELLS)


def test_cells_too_far_ahead_are_handed_back():
    release = CellRelease(cells_held_max=2)
    release.offer(CELLS[2])
    release.offer(CELLS[3])
    with pytest.raises(AtCapacity) as refused:
        release.offer(CELLS[4])
    assert refused.value.rejected is CELLS[4]
    release.offer(CELLS[0])
    assert release.offer(CELLS[1])[-1].seq == sum(len(c.chunks) for c in CELLS[:4]) - 1
