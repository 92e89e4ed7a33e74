import random
from itertools import pairwise

import pytest

from penstock.documents.anchors import CELL_BYTES, cell_anchors, cell_count, first_anchor
from penstock.documents.sources import BytesSource

CELL = 64 << 10


def prose(paragraphs: int, seed: int = 1, separator: str = "\n\n") -> bytes:
    words = random.Random(seed)
    made = (
        " ".join(words.choices(["cat", "window", "fish", "dream", "old", "market"], k=40)) for _ in range(paragraphs)
    )
    return separator.join(made).encode()


def anchors(data: bytes, cell_bytes: int = CELL) -> list[int]:
    source = BytesSource(data)
    return [a for cell in range(cell_count(len(data), cell_bytes)) for a in cell_anchors(source, cell, cell_bytes)]


def test_the_first_byte_is_always_an_anchor():
    for data in (b"x", b"\n\nx", prose(50)):
        assert anchors(data)[0] == 0


def test_an_empty_document_has_no_cells():
    assert cell_count(0) == 0


@pytest.mark.parametrize("separator", ["\n\n", "\r\n\r\n", "\n", " ", ""])
def test_every_cell_has_an_anchor_of_its_own(separator):
    data = prose(3_000, separator=separator)
    source = BytesSource(data)
    for cell in range(cell_count(len(data), CELL)):
        found = cell_anchors(source, cell, CELL)
        assert found
        assert all(cell * CELL <= anchor < (cell + 1) * CELL for anchor in found)
        assert found[0] == first_anchor(source, cell, CELL)


def test_past_the_last_cell_the_anchor_is_the_end():
    data = prose(10)
    assert first_anchor(BytesSource(data), 1, CELL) == len(data)


def test_anchors_are_starts_of_paragraphs_where_there_are_any():
    data = prose(5_000)
    assert all(data[anchor - 2 : anchor] == b"\n\n" for anchor in anchors(data)[1:])


def test_anchors_are_starts_of_lines_where_there_are_no_paragraphs():
    data = prose(5_000, separator="\n")
    assert all(data[anchor - 1 : anchor] == b"\n" for anchor in anchors(data)[1:])


def test_repeated_paragraphs_do_not_become_an_anchor_each():
    """Of 65,536 short paragraphs some hash to an anchor; repeated a thousand times they must not cut a thousand times."""
    for number in range(600):
        data = (b"paragraph number %d, again and again\n\n" % number) * 1000
        found = anchors(data, CELL_BYTES)
        assert all(right - left >= 16 << 10 for left, right in pairwise(found)), number


def test_an_insertion_moves_only_the_anchors_around_it():
    data = prose(20_000)
    middle = data.index(b"\n\n", len(data) // 2)
    edited = data[:middle] + prose(20, seed=2) + data[middle:]
    before, after = anchors(data, CELL_BYTES), anchors(edited, CELL_BYTES)
    shift = len(edited) - len(data)
    kept = {a for a in before if a < middle} | {a + shift for a in before if a > middle}
    assert len(kept & set(after)) >= 0.8 * len(before)


def test_an_anchor_never_breaks_a_character():
    data = ("e\u0301猫" * 60_000).encode()
    for anchor in anchors(data, 4096)[1:]:
        data[:anchor].decode()
        assert data[anchor:].decode()[0] != "\u0301"


def test_anchors_do_not_depend_on_what_lies_beyond_their_cell():
    data = prose(3_000)
    longer = data + prose(500, seed=3)
    whole = cell_count(len(data), CELL) - 1
    for cell in range(whole):
        assert cell_anchors(BytesSource(data), cell, CELL) == cell_anchors(BytesSource(longer), cell, CELL)


def test_the_anchor_rule_is_the_published_one():
    """A change of these numbers changes every stored chunk: it needs a new RULE and a reindex."""
    assert anchors(prose(4_000)) == GOLDEN


GOLDEN: list[int] = [
    0,
    21765,
    44322,
    65735,
    182327,
    196740,
    310627,
    340382,
    432032,
    458898,
    524511,
    608654,
    660917,
    690011,
    720969,
    826295,
    848212,
    852163,
]
