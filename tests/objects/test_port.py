"""The rules for keys and ranges. That every verb of every backend holds to them: tests/contracts/test_object_store.py."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import InvalidInput
from penstock.objects.port import RANGE_END_MAX, check_key, check_keys, check_range


def test_a_key_is_given_back_when_it_may_be_used() -> None:
    for key in ("a", "a/b", ".penstock-like/a", "a/.penstock", "日本/語", "...", "a b+c%20", "e\u0301", "\ufffd"):
        assert check_key(key) == key


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("", "it is empty"),
        ("a//b", "an empty segment"),
        ("a/../b", "'..' could leave its folder"),
        ("a\\b", "a backslash"),
        ("a\tb", "a control character"),
        ("a\uffff", "XML cannot carry"),
        ("\ud800", "UTF-8 cannot encode"),
        ("é" * 513, "1026 bytes, over the limit of 1024"),
        (".penstock/a", "belongs to the store itself"),
        (b"a", "it is of type bytes, not text"),
        (None, "it is of type NoneType, not text"),
    ],
)
def test_a_key_is_refused_with_the_reason(key: Any, why: str) -> None:
    with pytest.raises(InvalidInput, match="object key") as refusal:
        check_key(key)
    assert why in refusal.value.why


def test_a_range_may_reach_as_far_as_files_and_services_count() -> None:
    check_range("key", 0, RANGE_END_MAX)
    for start, end in ((-1, 0), (2, 1), (0, RANGE_END_MAX + 1)):
        with pytest.raises(InvalidInput, match="cannot be read"):
            check_range("key", start, end)


@pytest.mark.parametrize("ends", [("0", 1), (0.0, 1), (0, None)])
def test_a_range_is_counted_in_whole_bytes(ends: Any) -> None:
    with pytest.raises(InvalidInput, match="not whole numbers"):
        check_range("key", *ends)


def test_one_key_alone_is_not_taken_for_as_many_keys_as_it_has_letters() -> None:
    assert check_keys(key for key in ("a", "b")) == ["a", "b"]
    with pytest.raises(InvalidInput, match="letters would be taken for keys"):
        check_keys("ab")


@pytest.mark.parametrize("keys", [None, 3, True, object()])
def test_what_is_no_list_of_keys_is_refused(keys: object) -> None:
    with pytest.raises(InvalidInput, match="no list of keys"):
        check_keys(keys)  # type: ignore[arg-type]
