"""Keys: their order, their parts, and names that cannot be keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.blocks.meters import FORMAT, Table, tenant_prefix

from penstock.blocks import STORE, Address, Shelf, fragment_key, fragments_prefix, pages_prefix
from penstock.blocks.format.keys import POSITIONS, head_key, page_key, position_key, shelf_prefix
from penstock.errors import InvalidInput

_WORDS = st.integers(0, (1 << 64) - 1)
_SHELVES = st.builds(Shelf, st.sampled_from(Table), st.integers(0, 65535))
_ADDRESSES = st.builds(Address, _SHELVES, _WORDS, _WORDS)
_PREFIXES = st.text(min_size=1, max_size=5).filter(lambda text: text.isprintable()).map(tenant_prefix)


@given(_PREFIXES, _ADDRESSES, _ADDRESSES)
def test_fragments_lie_in_the_order_of_shelf_bucket_and_serial(prefix: bytes, one: Address, other: Address) -> None:
    assert (fragment_key(prefix, one) < fragment_key(prefix, other)) == (one < other)


@given(_PREFIXES, _ADDRESSES)
def test_a_fragments_key_tells_its_address_whatever_its_prefix(prefix: bytes, address: Address) -> None:
    assert FORMAT.address(fragment_key(prefix, address)) == address


@given(_PREFIXES, _SHELVES, _WORDS)
def test_a_pages_key_tells_its_shelf_and_low(prefix: bytes, shelf: Shelf, low: int) -> None:
    assert FORMAT.page(page_key(prefix, shelf, low)) == (shelf, low)


def test_head_pages_and_fragments_beneath_a_prefix_never_share_a_key() -> None:
    prefix, address = tenant_prefix("a"), Address(Shelf(Table.READINGS, 3), 0, 1)
    assert fragment_key(prefix, address).startswith((fragments_prefix(prefix), shelf_prefix(prefix, address.shelf)))
    assert page_key(prefix, address.shelf, 0).startswith(pages_prefix(prefix))
    keys = [head_key(prefix), pages_prefix(prefix), fragments_prefix(prefix)]
    assert len(set(keys)) == 3
    assert not any(key.startswith((STORE, POSITIONS)) for key in keys)


@pytest.mark.parametrize("name", ["", "x" * 1025, "\ud800"])
def test_a_name_that_cannot_be_a_key_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="source"):
        position_key(name)
