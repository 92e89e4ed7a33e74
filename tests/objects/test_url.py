"""A store's URL is understood in one way, or refused with the reason."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidInput
from penstock.objects.url import StoreUrl, parse_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("memory://", StoreUrl("memory", "")),
        ("memory://name", StoreUrl("memory", "name")),
        ("file:///", StoreUrl("file", "/")),
        ("file:///var/lib/penstock", StoreUrl("file", "/var/lib/penstock")),
        ("file:///with%20space/", StoreUrl("file", "/with space")),
        ("file://localhost/dir", StoreUrl("file", "/dir")),
        ("s3://bucket", StoreUrl("s3", "bucket")),
        ("s3://bucket/", StoreUrl("s3", "bucket")),
        ("s3://my.bucket-1/some/prefix/", StoreUrl("s3", "my.bucket-1", "some/prefix")),
        ("az://container/prefix", StoreUrl("az", "container", "prefix")),
        ("gs://bucket/日本", StoreUrl("gs", "bucket", "日本")),
    ],
)
def test_a_url_names_a_place_and_a_prefix(url: str, expected: StoreUrl) -> None:
    assert parse_url(url) == expected


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "no scheme"),
        ("/just/a/path", "no scheme"),
        ("s3:/bucket", "no scheme"),
        ("bucket/prefix", "no scheme"),
        ("ftp://host/dir", "'ftp' is not known"),
        ("s3a://bucket", "'s3a' is not known"),
        ("://bucket", "'' is not known"),
        ("s3://", "names no bucket"),
        ("s3:///prefix", "names no bucket"),
        ("az://", "names no container"),
        ("s3://b", "no name for a bucket"),
        ("s3://bucket:9000/prefix", "no name for a bucket"),
        ("s3://under score", "no name for a bucket"),
        ("file://relative/dir", "not absolute"),
        ("file://", "not absolute"),
        ("memory://name/prefix", "no prefix"),
        ("s3://bucket/prefix?region=x", "query"),
        ("file:///dir#part", "fragment"),
        ("s3://[bucket/prefix", "Invalid IPv6"),
    ],
)
def test_a_malformed_url_is_refused_with_the_reason_and_a_form_to_copy(url: str, why: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be used") as refusal:
        parse_url(url)
    assert why in str(refusal.value)
    assert refusal.value.remedy


def test_credentials_in_a_url_are_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidInput, match="credentials") as refusal:
        parse_url("s3://user:hunter2@bucket/prefix")
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize("url", ["s3://bucket/a//b", "s3://bucket/../other", "gs://bucket/a/%2e%2e/b"])
def test_a_prefix_must_be_a_key(url: str) -> None:
    with pytest.raises(InvalidInput, match="key"):
        parse_url(url)


@pytest.mark.parametrize("url", ["memory://name", "file:///dir", "s3://bucket/some/prefix", "az://container"])
def test_it_is_written_as_it_was_read(url: str) -> None:
    assert str(parse_url(url)) == url
