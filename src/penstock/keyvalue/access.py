"""How a bucket is reached: the options of `penstock.objects.open_store`, in the words SlateDB's client wants.

The names are the same in both rooms, so one set of options opens both. What is left out, the client
takes from the service's usual environment variables and then from the machine's own identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.errors import InvalidInput
from penstock.keyvalue.location import Location
from penstock.objects import ENCRYPTION_OPTIONS, check_encryption, check_endpoint, check_sendable

__all__ = ["client_entries"]

# Our name, and the client's. An empty one is taken and not passed on: SlateDB sorts its own listings.
_EVERYWHERE: Final = {
    "allow_http": "allow_http",
    "request_seconds_max": "timeout",
    "connect_seconds_max": "connect_timeout",
    "ordered_listing": "",
}
_NAMES: Final[dict[str, dict[str, str]]] = {
    "memory": {},
    "file": {},
    "s3": {
        **_EVERYWHERE,
        "endpoint": "endpoint",
        "region": "region",
        "access_key_id": "access_key_id",
        "secret_access_key": "secret_access_key",
        "session_token": "session_token",
        "path_style": "virtual_hosted_style_request",
        "anonymous": "skip_signature",
        "encryption": "server_side_encryption",
        "kms_key_id": "sse_kms_key_id",
        "kms_bucket_key": "sse_bucket_key_enabled",
        "customer_key": "sse_customer_key_base64",
    },
    "az": {
        **_EVERYWHERE,
        "endpoint": "endpoint",
        "account_name": "account_name",
        "account_key": "account_key",
        "sas_token": "sas_key",
    },
    "gs": {
        **_EVERYWHERE,
        "endpoint": "base_url",
        "service_account": "service_account",
        "service_account_key": "service_account_key",
        "bearer_token": "bearer_token",
        "anonymous": "skip_signature",
    },
}
_PLACE: Final = {"file": "local_path", "s3": "bucket", "az": "container_name", "gs": "bucket"}
_DURATIONS: Final = ("request_seconds_max", "connect_seconds_max")


def client_entries(location: Location, options: Mapping[str, Any]) -> dict[str, str]:
    """The entries from which SlateDB builds its client, beyond those of the environment."""
    names = _NAMES[location.scheme]
    _check_names(location, options, names)
    given = {option: value for option, value in options.items() if value is not None}
    check_sendable(given)
    if location.scheme == "s3":
        check_encryption(*map(given.get, ENCRYPTION_OPTIONS))
    if str(given.get("service_account", "")).lstrip().startswith("{"):
        # The text of a key, and no path: the client knows two options, and repeats the one for a path in its errors.
        given["service_account_key"] = given.pop("service_account")
    endpoint = given.get("endpoint")
    if endpoint is not None:
        check_endpoint(endpoint)
        # An endpoint without TLS was asked for by name.
        given.setdefault("allow_http", endpoint.startswith("http://"))
        if given.get("path_style") is False:
            given["endpoint"] = _with_bucket(endpoint, location.place)
    entries = {names[option]: _word(option, value) for option, value in given.items() if names[option]}
    if location.scheme in _PLACE:
        entries[_PLACE[location.scheme]] = location.place
    return entries


def _check_names(location: Location, options: Mapping[str, Any], names: Mapping[str, str]) -> None:
    for option in options:
        if option not in names:
            near = get_close_matches(option, names, 1)
            takes = f"{location.scheme}:// takes {', '.join(names) or 'none'}"
            raise InvalidInput(
                f"option {option!r} of {location} cannot be used",
                "there is no such option",
                f"did you mean {near[0]!r}?" if near else takes,
            )


def _with_bucket(endpoint: str, bucket: str) -> str:
    parts = urlsplit(endpoint)
    return parts._replace(netloc=f"{bucket}.{parts.netloc}").geturl()


def _word(option: str, value: Any) -> str:
    if option == "path_style":
        return "false" if value else "true"
    if option in _DURATIONS:
        return f"{round(value * 1000)}ms"
    return str(value).lower() if isinstance(value, bool) else str(value)
