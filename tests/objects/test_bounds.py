"""What every backend refuses alike, and in which words. By which verbs: tests/contracts/test_object_store.py."""

from __future__ import annotations

import pytest

from penstock.errors import AtCapacity, Conflict, InvalidInput
from penstock.objects import ObjectMeta
from penstock.objects.bounds import check_object_key, check_page_size, check_size, check_start, check_version


def test_a_key_is_given_back_when_it_may_be_used() -> None:
    for key in ("a", "a/b", ".penstock-like/a", "a/.penstock", "日本/語"):
        assert check_object_key(key) == key


def test_an_object_at_the_bound_is_read_and_one_byte_over_it_is_not() -> None:
    check_size("url", ObjectMeta("key", 10, "v", 0), 10)
    with pytest.raises(AtCapacity, match="read it in parts with get_range"):
        check_size("url", ObjectMeta("key", 11, "v", 0), 10)


def test_a_range_may_start_at_the_end_and_not_past_it() -> None:
    check_start("key", 10, 10)
    with pytest.raises(InvalidInput, match="past its end at 10 bytes"):
        check_start("key", 11, 10)


def test_a_conflict_says_what_was_expected() -> None:
    check_version("url", "key", "v1", "v1")
    check_version("url", "key", None, None)
    with pytest.raises(Conflict, match="already exists"):
        check_version("url", "key", "v1", None)
    with pytest.raises(Conflict, match="no longer at version v1"):
        check_version("url", "key", "v2", "v1")
    with pytest.raises(Conflict, match="no longer at version v1"):
        check_version("url", "key", None, "v1")


def test_a_page_holds_at_least_one() -> None:
    check_page_size(1)
    with pytest.raises(InvalidInput):
        check_page_size(0)
