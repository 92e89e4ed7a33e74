"""A store's URL is understood in one way, or refused with the reason."""

from __future__ import annotations

from pathlib import Path
from traceback import format_exception
from typing import Any

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
        ("://bucket", "scheme is not known"),
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
        ("file:///dir%00", "such a name"),
        ("file:///\ud800", "such a name"),
        ("s3://[bucket/prefix", "malformed"),
    ],
)
def test_a_malformed_url_is_refused_with_the_reason_and_a_form_to_copy(url: str, why: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be used") as refusal:
        parse_url(url)
    assert why in str(refusal.value)
    assert refusal.value.remedy


def told(error: BaseException) -> str:
    """Everything that a log would have of an error, its causes included."""
    return repr(error) + "".join(format_exception(error))


@pytest.mark.parametrize(
    "url",
    [
        "s3://user:hunter2@bucket/prefix",
        "https://user:hunter2@bucket/prefix",
        "s3://user:hunter2@[bucket",
        "az://container?sig=hunter2",
        "https://account.example.com/container?sig=hunter2",
        "https://hooks.example.com/services/hunter2",
        "s3:/key:hunter2@bucket/prefix",
        "s3:key:hunter2@bucket",
        "key:hunter2@bucket",
        "s3://key:hunter2/with/slash@bucket/prefix",
        "s3://key:hunter2#half@bucket",
        "s3://key%3Ahunter2%40bucket/prefix",
        "s3://key:hunter2/prefix",
        "s3://key:hunter2\u2100@bucket",
        "memory://key:hunter2@name",
        "memory://name/x?token=hunter2",
        "file:///directory?token=hunter2",
        "file:///directory#hunter2",
        "file://key:hunter2@host/directory",
        "AccountName=account;AccountKey=hunter2;EndpointSuffix=core.windows.net",
        "S3://key:hunter2@bucket",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be used") as refusal:
        parse_url(url)
    assert "hunter2" not in told(refusal.value)


@pytest.mark.parametrize("url", [None, b"memory://", Path("/directory")])
def test_a_url_is_text(url: Any) -> None:
    with pytest.raises(InvalidInput, match="must be text"):
        parse_url(url)


@pytest.mark.parametrize("url", ["s3://bucket/a//b", "s3://bucket/../other", "gs://bucket/a/%2e%2e/b"])
def test_a_prefix_must_be_a_key(url: str) -> None:
    with pytest.raises(InvalidInput, match="its prefix is no key") as refusal:
        parse_url(url)
    assert url in refusal.value.what


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("/data/queue", "write file:///data/queue"),
        ("file:/data/queue", "write file:///data/queue"),
        ("./queue", "write the full path as file:///directory"),
        ("~/queue", "write the full path as file:///directory"),
        ("file:queue", "write the full path as file:///directory"),
    ],
)
def test_who_writes_a_path_is_told_its_url(path: str, remedy: str) -> None:
    with pytest.raises(InvalidInput, match="it is a path") as refusal:
        parse_url(path)
    assert refusal.value.remedy == remedy


@pytest.mark.parametrize("url", ["memory://name", "file:///dir", "s3://bucket/some/prefix", "az://container"])
def test_it_is_written_as_it_was_read(url: str) -> None:
    assert str(parse_url(url)) == url


@pytest.mark.parametrize(
    "name", ["plain", "with space", "日本", "50%", "a%20b", "what?", "no#1", "a+b", "two\nlines", "a\tb", "\r"]
)
def test_a_place_of_any_name_is_found_again_by_the_url_it_gives(name: str) -> None:
    # A file may have any name, a key not.
    for place in (StoreUrl("file", f"/{name}"), *([StoreUrl("s3", "bucket", name)] if name.isprintable() else [])):
        assert parse_url(str(place)) == place


@pytest.mark.parametrize("url", ["file:///a\nb", "s3://buck\tet/x", "s3://bucket/a\r", "\nfile:///a", "mem\nory://"])
def test_a_line_break_in_a_url_is_refused_and_not_left_out(url: str) -> None:
    with pytest.raises(InvalidInput, match="line break or a tab"):
        parse_url(url)
