"""A URL and a path become one place, or an error that names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import InvalidInput
from penstock.keyvalue.location import locate


@pytest.mark.parametrize(
    ("url", "path", "shown"),
    [
        ("memory://", "store", "memory:///store"),
        ("memory://name", "a/b", "memory://name/a/b"),
        ("file:///data", "vectors", "file:///data/vectors"),
        ("file://localhost/data/", "vectors", "file:///data/vectors"),
        ("file:///with%20space", "v", "file:///with space/v"),
        ("s3://bucket", "vectors", "s3://bucket/vectors"),
        ("s3://bucket/some/prefix/", "vectors", "s3://bucket/some/prefix/vectors"),
        ("az://container/p", "v", "az://container/p/v"),
        ("gs://bucket/p", "v", "gs://bucket/p/v"),
    ],
)
def test_a_good_url_and_path_make_one_place(url: str, path: str, shown: str) -> None:
    assert str(locate(url, path)) == shown


def test_a_directory_store_has_a_folder_of_its_own() -> None:
    assert locate("file:///data", "a/b").folder == Path("/data/a/b")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "scheme"),
        ("/plain/directory", "scheme"),
        ("ftp://host/x", "'ftp'"),
        ("s3:bucket", "scheme"),
        ("file:/data", "no scheme"),
        ("file:///data%00", "such a name"),
        ("s3://", "no bucket"),
        ("az:///x", "no container"),
        ("file://host/dir", "not absolute"),
        ("file:///a/../b", "'..'"),
        ("memory://name/prefix", "no prefix"),
        ("s3://bucket?region=x", "query"),
        ("s3://[bucket", "malformed"),
    ],
)
def test_a_url_that_is_no_store_is_refused_by_name(url: str, why: str) -> None:
    with pytest.raises(InvalidInput, match="store URL") as refusal:
        locate(url, "store")
    assert why in str(refusal.value)
    assert repr(url) in refusal.value.what or "..." in refusal.value.what


@pytest.mark.parametrize(("url", "path"), [(None, "a"), (5, "a"), (b"memory://", "a"), ("memory://", None)])
def test_a_url_and_a_path_are_text(url: Any, path: Any) -> None:
    with pytest.raises(InvalidInput, match="it must be text"):
        locate(url, path)


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidInput, match="credentials") as refusal:
        locate("s3://key:password@bucket/x", "store")
    assert "password" not in str(refusal.value)


@pytest.mark.parametrize("path", ["", "/", "a//b", "../up", "a/../b", "a/.", "/a", "a/", "line\nbreak", "nul\0"])
@pytest.mark.parametrize("url", ["memory://", "file:///data", "s3://bucket/prefix"])
def test_a_path_that_could_leave_its_place_is_refused_by_name(url: str, path: str) -> None:
    with pytest.raises(InvalidInput, match="store path") as refusal:
        locate(url, path)
    assert repr(path) in refusal.value.what
