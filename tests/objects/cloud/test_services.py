"""The options of the cloud services reach the client, secrets stay out of sight, and retries stay off."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import InvalidInput
from penstock.objects.cloud.services import SERVICES, AzureOptions, GoogleOptions, S3Options, connect, is_own_address

S3: dict[str, Any] = {"region": "r", "access_key_id": "id", "secret_access_key": "hidden"}


@pytest.mark.parametrize(
    "options",
    [
        S3Options(**S3),
        AzureOptions(account_name="a", account_key="aGlkZGVu"),
        GoogleOptions(bearer_token="hidden"),
    ],
)
def test_the_client_never_repeats_a_request_by_itself(options: S3Options | AzureOptions | GoogleOptions) -> None:
    """It would repeat conditional writes that may have landed."""
    retries = connect("url", "bucket", options).store.retry_config
    assert retries is not None
    assert retries["max_retries"] == 0


def test_secrets_are_not_shown() -> None:
    shown = [
        repr(S3Options(**S3, session_token="hidden")),
        repr(AzureOptions(account_key="hidden", sas_token="hidden")),
        repr(GoogleOptions(service_account_key="hidden", bearer_token="hidden")),
    ]
    assert not any("hidden" in text for text in shown)


def test_plain_http_is_allowed_only_where_it_is_spelled_out() -> None:
    def allowed(**options: object) -> bool:
        remote = connect("url", "bucket", S3Options(**S3, **options))  # type: ignore[arg-type]
        assert remote.store.client_options is not None
        return str(remote.store.client_options["allow_http"]) == "true"

    assert allowed(endpoint="http://host")
    assert not allowed(endpoint="https://host")
    assert not allowed(endpoint="http://host", allow_http=False)


def test_a_virtual_host_carries_the_bucket() -> None:
    remote = connect("url", "bucket", S3Options(**S3, endpoint="https://host:9000", path_style=False))
    assert remote.store.config["endpoint"] == "https://bucket.host:9000"  # type: ignore[typeddict-item]
    assert connect("url", "bucket", S3Options(**S3, endpoint="https://host")).store.config["endpoint"] == "https://host"  # type: ignore[typeddict-item]


def test_an_endpoint_without_a_scheme_is_refused() -> None:
    with pytest.raises(InvalidInput, match="http://"):
        connect("url", "bucket", S3Options(**S3, endpoint="host:9000"))


def test_only_the_services_own_addresses_are_trusted_to_list_in_order() -> None:
    assert is_own_address("s3.eu-central-1.amazonaws.com")
    assert is_own_address("account.blob.core.windows.net")
    assert is_own_address("storage.googleapis.com")
    for host in ("127.0.0.1", "minio.example.com", "amazonaws.com.example.com", ""):
        assert not is_own_address(host)


def test_there_are_three() -> None:
    assert list(SERVICES) == ["s3", "az", "gs"]
