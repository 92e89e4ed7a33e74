"""The options of a bucket reach SlateDB's client under the names it knows."""

from __future__ import annotations

from typing import Any

import pytest
from slatedb import uniffi

from penstock.errors import InvalidInput
from penstock.keyvalue.access import _NAMES, client_entries
from penstock.keyvalue.location import locate

TYPES = {"s3": uniffi.ObjectStoreType.S3, "az": uniffi.ObjectStoreType.AZURE, "gs": uniffi.ObjectStoreType.GCS}


def entries(url: str, **options: Any) -> dict[str, str]:
    return client_entries(locate(url, "store"), options)


def test_an_s3_bucket_needs_nothing_but_its_name() -> None:
    assert entries("s3://bucket/prefix") == {"bucket": "bucket"}


def test_credentials_and_endpoint_are_passed_on() -> None:
    given = entries("s3://bucket", endpoint="http://127.0.0.1:1", access_key_id="a", secret_access_key="s", region="r")
    assert given == {
        "bucket": "bucket",
        "endpoint": "http://127.0.0.1:1",
        "access_key_id": "a",
        "secret_access_key": "s",
        "region": "r",
        "allow_http": "true",
    }


def test_plain_http_is_allowed_only_where_it_was_asked_for() -> None:
    assert entries("s3://bucket", endpoint="https://host")["allow_http"] == "false"
    assert entries("s3://bucket", endpoint="http://host", allow_http=False)["allow_http"] == "false"
    assert "allow_http" not in entries("s3://bucket")


def test_a_bucket_in_the_host_name_moves_into_the_endpoint() -> None:
    given = entries("s3://bucket", endpoint="https://host:9000", path_style=False)
    assert given["endpoint"] == "https://bucket.host:9000"
    assert given["virtual_hosted_style_request"] == "true"


def test_azure_and_google_keep_their_own_names() -> None:
    assert entries("az://container", account_name="n", account_key="k") == {
        "container_name": "container",
        "account_name": "n",
        "account_key": "k",
    }
    assert entries("gs://bucket", endpoint="https://g", service_account="/key.json", anonymous=True) == {
        "bucket": "bucket",
        "base_url": "https://g",
        "service_account": "/key.json",
        "skip_signature": "true",
        "allow_http": "false",
    }


def test_an_option_given_as_none_is_left_to_the_environment() -> None:
    assert entries("s3://bucket", region=None) == {"bucket": "bucket"}


def test_limits_in_seconds_become_durations() -> None:
    given = entries("s3://bucket", request_seconds_max=1.5, connect_seconds_max=2)
    assert (given["timeout"], given["connect_timeout"]) == ("1500ms", "2000ms")


@pytest.mark.parametrize("scheme", ["s3", "az", "gs"])
def test_the_client_knows_every_name_we_pass(scheme: str) -> None:
    """The builder refuses a name it does not know, so a renamed setting shows here and not in production."""
    for name in filter(None, _NAMES[scheme].values()):
        uniffi.ObjectStoreBuilder(TYPES[scheme]).with_config(name, "1s" if "timeout" in name else "true")


@pytest.mark.parametrize(
    ("url", "option", "remedy"),
    [
        ("s3://bucket", "acces_key_id", "did you mean 'access_key_id'?"),
        ("az://bucket", "region", "az:// takes"),
        ("file:///d", "endpoint", "file:// takes none"),
        ("memory://", "endpoint", "memory:// takes none"),
    ],
)
def test_an_option_the_store_does_not_have_is_refused_by_name(url: str, option: str, remedy: str) -> None:
    with pytest.raises(InvalidInput, match=option) as refusal:
        entries(url, **{option: "x"})
    assert remedy in refusal.value.remedy


def test_an_endpoint_without_a_scheme_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"127\.0\.0\.1:9000"):
        entries("s3://bucket", endpoint="127.0.0.1:9000")
