"""Keys: their order, their parts, and names that cannot be keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.blocks import STORE, Address, Shelf, fragment_key, fragments_prefix, pages_prefix
from penstock.blocks.format.keys import POSITIONS, head_key, page_key, position_key
from penstock.errors import InvalidInput
from penstock.vector.format.keys import (
    COLLECTIONS,
    CollectionName,
    Family,
    collection_key,
    collection_prefix,
    parse_collection_key,
)
from penstock.vector.format.store_format import FORMAT

_WORDS = st.integers(0, (1 << 64) - 1)
_SHELVES = st.builds(Shelf, st.sampled_from(Family), st.integers(0, 65535))
_ADDRESSES = st.builds(Address, _SHELVES, _WORDS, _WORDS)
_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(_ADDRESSES, _ADDRESSES)
def test_fragments_lie_in_the_order_of_shelf_bucket_and_serial(one: Address, other: Address) -> None:
    assert (fragment_key(collection_prefix(1), one) < fragment_key(collection_prefix(1), other)) == (one < other)


@given(_ADDRESSES)
def test_a_fragments_key_tells_its_address(address: Address) -> None:
    assert FORMAT.address(fragment_key(collection_prefix(9), address)) == address


@given(_SHELVES, _WORDS)
def test_a_pages_key_tells_its_shelf_and_low(shelf: Shelf, low: int) -> None:
    assert FORMAT.page(page_key(collection_prefix(9), shelf, low)) == (shelf, low)


@given(_NAMES, _NAMES, _NAMES)
def test_a_collections_key_tells_its_name(tenant: str, index: str, model: str) -> None:
    name = CollectionName(tenant, index, model)
    assert parse_collection_key(collection_key(name)) == name


def test_names_that_join_to_the_same_text_have_different_keys() -> None:
    assert collection_key(CollectionName("a", "bc", "d")) != collection_key(CollectionName("ab", "c", "d"))


def test_a_collections_keys_share_its_prefix_and_no_other() -> None:
    address = Address(Shelf(Family.VECTORS), 0, 1)
    for key in (
        head_key(collection_prefix(1)),
        page_key(collection_prefix(1), address.shelf, 0),
        fragment_key(collection_prefix(1), address),
        pages_prefix(collection_prefix(1)),
        fragments_prefix(collection_prefix(1)),
    ):
        assert key.startswith(collection_prefix(1))
        assert not key.startswith(collection_prefix(2))
        assert not key.startswith((STORE, POSITIONS, COLLECTIONS))


@pytest.mark.parametrize("name", ["", "x" * 1025, "\ud800"])
def test_a_name_that_cannot_be_a_key_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="source"):
        position_key(name)
    with pytest.raises(InvalidInput, match="index"):
        CollectionName("tenant", name, "model")
