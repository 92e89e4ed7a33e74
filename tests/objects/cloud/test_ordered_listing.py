"""Where a listing starts on the server: late enough to be quick, never so late that a key is missed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.objects.cloud.ordered_listing import start_after
from penstock.objects.prefix_walk import is_object_key

TEXT = st.text(alphabet="ab-./!~ é\uffee\U00010000", max_size=6)
KEY = TEXT.filter(is_object_key)


@given(key=KEY, prefix=TEXT, offset=TEXT)
def test_no_wanted_key_lies_before_the_start(key: str, prefix: str, offset: str) -> None:
    start = start_after(prefix, offset)
    if start is not None:
        assert is_object_key(start)
        assert not (key.startswith(prefix) and key > offset) or key > start


def test_it_starts_just_below_the_prefix_or_at_the_offset() -> None:
    assert start_after("folder/b", "") == "folder/a~"
    assert start_after("folder/b", "folder/bc") == "folder/bc"
    assert start_after("folder/b", "folder/a") == "folder/a~"
    assert start_after("", "") is None
