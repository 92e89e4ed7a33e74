"""Identities and the dictionary: every id finds its own row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Corrupt
from penstock.vector.format.identity import ABSENT, DictionaryBlock, Identities, identities_of
from penstock.vector.format.idset import IdSet
from penstock.vector.format.keys import Family
from penstock.vector.format.store_format import FORMAT

# Few high words, so that identities which share one are common.
_PAIRS = st.tuples(st.integers(0, 3), st.integers(0, 5))


def identities(pairs: list[tuple[int, int]]) -> Identities:
    high, low = np.array(pairs, np.uint64).reshape(-1, 2).T
    return Identities(np.ascontiguousarray(high), np.ascontiguousarray(low))


@given(
    st.lists(st.lists(st.tuples(_PAIRS, st.integers(-1, 50)), max_size=12), min_size=1, max_size=4), st.lists(_PAIRS)
)
def test_the_merged_dictionary_says_what_a_dict_would(
    fragments: list[list[tuple[tuple[int, int], int]]], wanted: list[tuple[int, int]]
) -> None:
    expected: dict[tuple[int, int], int] = {}
    blocks = []
    for entries in fragments:
        expected.update(entries)
        rows = np.array([row for _, row in entries], np.int64)
        blocks.append(DictionaryBlock.of(identities([pair for pair, _ in entries]), rows))
    merged = DictionaryBlock.merge(
        [FORMAT.decode(Family.DICTIONARY, FORMAT.encode(Family.DICTIONARY, block), DictionaryBlock) for block in blocks]
    )
    assert merged.find(identities(wanted)).tolist() == [expected.get(pair, ABSENT) for pair in wanted]
    assert len(merged) == len(expected)


@given(st.lists(_PAIRS))
def test_unique_names_each_identity_once_and_places_all(pairs: list[tuple[int, int]]) -> None:
    unique, places = identities(pairs).unique()
    assert list(zip(unique.high.tolist(), unique.low.tolist(), strict=True)) == sorted(set(pairs))
    assert [(int(unique.high[p]), int(unique.low[p])) for p in places] == pairs


def test_a_hidden_row_is_known_by_document_version_and_id_together() -> None:
    names = pa.array(["a"])
    kinds = [
        identities_of(names),
        identities_of(names, "d", "v"),
        identities_of(names, "dv", ""),
        identities_of(names, "", "dv"),
    ]
    assert len({(int(kind.high[0]), int(kind.low[0])) for kind in kinds}) == 4


def test_identities_never_change_between_releases() -> None:
    """They are in the stored format: a change of hash would lose every row."""
    visible, hidden = identities_of(pa.array(["chunk-1"])), identities_of(pa.array(["chunk-1"]), "doc", "v1")
    found = [f"{int(word):016x}" for kind in (visible, hidden) for word in (kind.high[0], kind.low[0])]
    assert found == ["207be9df3fa6f6ed", "3667653698b55d22", "623cc88e308643ac", "3cddd136c4fa2e09"]


def test_a_rewrite_drops_entries_of_dead_rows_and_of_none() -> None:
    block = DictionaryBlock.of(identities([(1, 1), (2, 2), (3, 3)]), np.array([4, ABSENT, 6]))
    assert block.kept(IdSet.of(np.array([6]), 10)).tolist() == [True, False, False]


def test_a_dictionary_whose_length_does_not_hold_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        FORMAT.decode(Family.DICTIONARY, FORMAT.envelope.seal(5, b"\x02" + b"\x00" * 31), DictionaryBlock)
