"""What a write batch accepts, counts and refuses before any store sees it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput
from penstock.keyvalue import WriteBatch, prefix_end
from penstock.keyvalue.port import KEY_BYTES_MAX, VALUE_BYTES_MAX, check_scan


def test_a_batch_counts_the_bytes_it_would_write() -> None:
    batch = WriteBatch().put(b"key", b"12345")
    assert (len(batch), batch.size_bytes) == (1, 8)
    batch.put(b"key", b"1")
    assert (len(batch), batch.size_bytes) == (1, 4)
    batch.delete(b"key").delete(b"other")
    assert (len(batch), batch.size_bytes) == (2, 8)


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=2), st.none() | st.binary(max_size=5))))
def test_the_size_of_any_batch_is_the_sum_of_what_is_left_in_it(operations: list[tuple[bytes, bytes | None]]) -> None:
    batch = WriteBatch()
    for key, value in operations:
        batch.delete(key) if value is None else batch.put(key, value)
    assert batch.size_bytes == sum(len(key) + len(value or b"") for key, value in batch.operations())


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        (b"", b"value", "empty"),
        (b"k" * (KEY_BYTES_MAX + 1), b"value", "65536 bytes"),
        ("text", b"value", "'text'"),
        (b"key", "text", "the value of b'key' is str"),
        (b"key", bytearray(b"value"), "bytearray"),
        (b"key", bytes(VALUE_BYTES_MAX + 1), "67108865 bytes"),
    ],
)
def test_what_no_store_can_hold_is_refused_by_name_and_leaves_the_batch_as_it_was(
    key: bytes, value: bytes, named: str
) -> None:
    batch = WriteBatch().put(b"kept", b"1")
    with pytest.raises(InvalidInput, match=named):
        batch.put(key, value)
    assert list(batch.operations()) == [(b"kept", b"1")]


@given(st.binary(max_size=4), st.binary(max_size=6))
def test_the_end_of_a_prefix_parts_the_keys_that_have_it_from_those_after(prefix: bytes, key: bytes) -> None:
    end = prefix_end(prefix)
    inside = prefix <= key and (end is None or key < end)
    assert inside == key.startswith(prefix)


@pytest.mark.parametrize(("start", "end"), [("text", None), (b"", "text"), (None, None), (5, 6)])
def test_a_scan_goes_from_bytes_to_bytes(start: Any, end: Any) -> None:
    check_scan(b"", None, 1)
    with pytest.raises(InvalidInput, match="keys are bytes"):
        check_scan(start, end, 1)
    with pytest.raises(InvalidInput, match="a prefix to scan is str"):
        prefix_end("text")  # type: ignore[arg-type]
