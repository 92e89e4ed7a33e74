"""What every backend refuses alike, and in which words. By which verbs: tests/contracts/test_object_store.py."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from penstock.errors import AtCapacity, Conflict, InvalidInput
from penstock.objects import ObjectMeta
from penstock.objects.bounds import check_body, check_listing, check_size, check_start, check_version


def test_a_body_is_taken_as_it_is_unless_its_owner_could_still_change_it() -> None:
    fixed = b"abcdef"
    assert check_body("key", fixed) is fixed
    assert check_body("key", memoryview(fixed)[1:3]).obj is fixed  # type: ignore[union-attr]
    changing = bytearray(fixed)
    for body in (check_body("key", changing), check_body("key", memoryview(changing))):
        changing[:] = b"ABCDEF"
        assert body == fixed
        changing[:] = fixed


def test_a_body_of_any_shape_becomes_its_bytes_in_order() -> None:
    assert check_body("key", memoryview(b"abcdef")[::2]) == b"ace"
    assert check_body("key", memoryview(b"abcdef").cast("B", [2, 3])) == b"abcdef"
    assert check_body("key", memoryview(array("H", [1, 2]))) == array("H", [1, 2]).tobytes()
    assert check_body("key", memoryview(array("H")).toreadonly()) == b""


@pytest.mark.parametrize("body", ["text", 5, None, [1, 2]])
def test_a_body_that_is_no_bytes_is_refused(body: Any) -> None:
    with pytest.raises(InvalidInput, match=f"'key' cannot be written: its body is of type {type(body).__name__}"):
        check_body("key", body)


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


def test_a_page_holds_at_least_one_and_no_more_than_can_be_counted() -> None:
    check_listing("", "", 1)
    check_listing("", "", 2**63 - 1)
    for page_size in (0, -1, 2**63, "1", 1.0, None):
        with pytest.raises(InvalidInput, match="page_size"):
            check_listing("", "", page_size)  # type: ignore[arg-type]


def test_a_listing_is_asked_for_by_text() -> None:
    for prefix, offset in ((None, ""), ("", 5), (b"a", "")):
        with pytest.raises(InvalidInput, match="not text"):
            check_listing(prefix, offset, 1)  # type: ignore[arg-type]
