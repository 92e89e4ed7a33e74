"""What is said of documents is bounded, whoever says it; and a side-car is known by its name."""

from __future__ import annotations

import pytest

from penstock.documents import is_sidecar, merged_metadata, sidecar_key, sidecar_subject
from penstock.documents.metadata import METADATA_BYTES_MAX, bounded_metadata


@pytest.mark.parametrize(
    ("key", "is_one"),
    [
        ("a.pdf.meta.json", True),
        ("folder/a.meta.json", True),
        (".meta.json", False),
        ("folder/.meta.json", False),
        ("a.meta.json.meta.json", False),
        ("a.META.JSON", False),
        ("a.json", False),
    ],
)
def test_a_side_car_is_known_by_its_name(key: str, is_one: bool) -> None:
    assert is_sidecar(key) is is_one
    if is_one:
        assert sidecar_key(sidecar_subject(key)) == key


def test_ten_thousand_names_are_cut_to_a_hundred_and_told() -> None:
    kept, warnings = bounded_metadata({f"name {number:05}": number for number in range(10_000)})
    assert list(kept) == [f"name {number:05}" for number in range(100)]
    assert any("10,000 names" in warning for warning in warnings)
    assert len(warnings) == 2


def test_all_of_it_is_bounded_in_bytes() -> None:
    kept, warnings = bounded_metadata({f"n{number}": "x" * 4_000 for number in range(10)})
    assert 0 < sum(map(len, kept.values())) <= METADATA_BYTES_MAX
    assert len(kept) + len(warnings) == 10


def test_a_side_car_decides_and_null_takes_away() -> None:
    assert merged_metadata({"a": 1, "b": 2, "c": 3}, {"b": None, "c": "x"}) == ({"a": 1, "c": "x"}, ())
    assert merged_metadata(None, None) == ({}, ())


def test_broken_unicode_and_endless_numbers_are_left_out() -> None:
    kept, warnings = bounded_metadata({"a": "\ud800", "b": float("nan"), "c": 2**64, "d": [float("inf")], "e": b"raw"})
    assert kept == {}
    assert len(warnings) == 5
