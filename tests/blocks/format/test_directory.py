"""Directories: the only authority on what exists, and cheap to change."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.blocks.meters import FORMAT

from penstock.blocks import EMPTY, Directory
from penstock.blocks.format.directory import directory_of
from penstock.blocks.read.pages import decode_page, encode_page

_LOWS = st.integers(0, (1 << 64) - 1)


def made(lows: list[int]) -> Directory:
    return EMPTY.changed([], [(low, serial, 2, 10) for serial, low in enumerate(lows)])


def test_buckets_are_runs_of_fragments_in_the_order_of_serials() -> None:
    directory = made([5, 1, 5, 5, 9])
    assert directory.lows.tolist() == [1, 5, 9]
    assert directory.bucket(5)["serial"].tolist() == [0, 2, 3]
    assert directory.rows.tolist() == [2, 6, 2]
    assert len(directory.bucket(4)) == 0


def test_a_key_belongs_to_the_last_bucket_that_begins_at_or_before_it() -> None:
    assert made([10, 20]).locate(np.array([0, 9, 10, 19, 20, 99])).tolist() == [-1, -1, 0, 0, 1, 1]


def test_a_change_leaves_the_directory_it_was_made_from_alone() -> None:
    before = made([1, 2, 3])
    after = before.changed([1], [(2, 77, 5, 5)])
    assert before.fragments["serial"].tolist() == [0, 1, 2]
    assert after.fragments["serial"].tolist() == [0, 77, 2]


@given(st.lists(st.tuples(st.lists(_LOWS, max_size=400), st.lists(st.integers(0, 2000), max_size=50)), max_size=6))
def test_the_pages_written_over_time_hold_the_directory(changes: list[tuple[list[int], list[int]]]) -> None:
    """Whatever is added and removed, reading all pages gives the directory back."""
    directory, stored, serial = EMPTY, {}, 0
    for lows, removed in changes:
        gone = [number for number in removed if number < serial]
        added = [(low, serial + place, 1, 1) for place, low in enumerate(lows)]
        serial += len(added)
        touched = [low for low, *_ in added]
        touched += directory.fragments["low"][np.isin(directory.fragments["serial"], gone)].tolist()
        directory, pages = directory.changed(gone, added).paged(np.array(touched, np.uint64))
        for page in pages:
            stored[page.low] = encode_page(FORMAT, page.fragments)
            if not len(page.fragments) and page.low:
                del stored[page.low]
    read = directory_of([(low, decode_page(FORMAT, stored[low])) for low in sorted(stored)])
    assert read.fragments.tolist() == directory.fragments.tolist()
    assert read.pages.tolist() == directory.pages.tolist()


def test_a_long_page_is_cut_between_buckets_and_a_small_change_writes_one_page() -> None:
    lows = [low for low in range(3000) for _ in range(2)]
    directory, pages = made(lows).paged(np.arange(3000, dtype=np.uint64))
    assert max(len(page.fragments) for page in pages) <= 512
    assert len(directory.pages) == len(pages) > 5
    _, changed = directory.changed([], [(1500, 9999, 1, 1)]).paged(np.array([1500], np.uint64))
    assert len(changed) == 1
