"""A walk through folders comes out in byte order of whole keys, whatever the names."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.objects.prefix_walk import folder_of, may_hold, walk

SEGMENT = st.text(alphabet="ab-./!~é\uffee\U00010000", min_size=1, max_size=3).filter(
    lambda text: "/" not in text and text not in (".", "..")
)
KEY = st.lists(SEGMENT, min_size=1, max_size=4).map("/".join)


class Tree:
    """Folders made of keys; `scanned` says which were looked into."""

    def __init__(self, keys: Iterable[str]) -> None:
        self.keys = set(keys)
        self.scanned: list[str] = []

    def scan(self, folder: str) -> list[tuple[str, bool]]:
        self.scanned.append(folder)
        below = [key.removeprefix(folder) for key in self.keys if key.startswith(folder)]
        return sorted({(rest.split("/")[0], "/" in rest) for rest in below})


@given(keys=st.sets(KEY, max_size=12), prefix=st.one_of(st.just(""), KEY), offset=st.one_of(st.just(""), KEY))
def test_a_walk_finds_what_a_filter_over_all_keys_finds(keys: set[str], prefix: str, offset: str) -> None:
    found = list(walk(Tree(keys).scan, prefix, offset))
    assert found == sorted((key for key in keys if key.startswith(prefix) and key > offset), key=str.encode)


def test_folders_without_a_wanted_key_are_not_looked_into() -> None:
    tree = Tree(["a/b/1", "a/c/1", "a/d/1", "b/1"])
    assert list(walk(tree.scan, "a/", "a/c")) == ["a/c/1", "a/d/1"]
    assert tree.scanned == ["a/", "a/c/", "a/d/"]


def test_the_reserved_folder_is_not_looked_into() -> None:
    tree = Tree([".penstock/locks/00", "a/.penstock/kept"])
    assert list(walk(tree.scan, "", "")) == ["a/.penstock/kept"]
    assert ".penstock/" not in tree.scanned


@pytest.mark.parametrize(
    ("prefix", "folder"),
    [
        ("", ""),
        ("a", ""),
        ("a/", "a/"),
        ("a/b", "a/"),
        ("a/b/c", "a/b/"),
        ("../a", None),
        ("a//b", None),
        ("/a", None),
        ("a/./b", None),
        (".penstock/a", None),
        ("a\\b/c", None),
    ],
)
def test_a_prefix_lies_in_one_folder_or_in_none(prefix: str, folder: str | None) -> None:
    assert folder_of(prefix) == folder


@given(folder=KEY, key=KEY, prefix=KEY, offset=KEY)
def test_a_folder_that_holds_a_wanted_key_is_never_passed_over(folder: str, key: str, prefix: str, offset: str) -> None:
    whole = f"{folder}/{key}"
    if whole.startswith(prefix) and whole > offset:
        assert may_hold(f"{folder}/", prefix, offset)
