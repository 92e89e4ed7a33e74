"""The three cloud services: their options, and how each keeps versions.

What an option leaves out, the client takes from the service's usual environment variables
(`AWS_ACCESS_KEY_ID`, `AZURE_STORAGE_ACCOUNT_KEY`, `GOOGLE_SERVICE_ACCOUNT` ...) and then from the
machine's own identity. The client's retries are off: it would repeat conditional writes whose first
try may have landed, and report a conflict of a writer with itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from penstock.errors import InvalidInput
from penstock.loops import Home
from penstock.native_threads import rest_native_threads_at_exit
from penstock.objects.encryption import check_encryption
from penstock.objects.url import check_endpoint, check_sendable

if TYPE_CHECKING:
    from obstore import GetOptions, PutResult, UpdateVersion
    from obstore import ObjectMeta as RemoteMeta
    from obstore.store import ClientConfig, RetryConfig

__all__ = [
    "SERVICES",
    "AzureOptions",
    "GoogleOptions",
    "Remote",
    "S3Options",
    "ServiceOptions",
    "Versions",
    "connect",
    "is_own_address",
]

RemoteStore = S3Store | AzureStore | GCSStore

# A request for tens of megabytes on a slow line; what takes longer has lost its connection.
REQUEST_SECONDS_MAX: Final = 60.0
CONNECT_SECONDS_MAX: Final = 5.0

_OWN_HOSTS: Final = (".amazonaws.com", ".amazonaws.com.cn", ".blob.core.windows.net", "storage.googleapis.com")
_NO_RETRIES: RetryConfig = {"max_retries": 0}


@dataclass(frozen=True, slots=True)
class Remote:
    """A bucket as the client sees it, and what is to know about its service."""

    client: RemoteStore
    versions: Versions
    # Whether listings come in byte order and start at an offset, as asked for; None: see `is_own_address`.
    is_ordered: bool | None

    @property
    def store(self) -> RemoteStore:
        """The client, where its threads are."""
        _client_home().check("the client of the cloud services", "start processes with spawn, or before its first use")
        return self.client


class Versions(Protocol):
    """Where a service keeps the version of an object, and how it is made a condition."""

    def of(self, meta: RemoteMeta | PutResult) -> str: ...

    def for_update(self, version: str) -> UpdateVersion: ...

    def for_read(self, version: str) -> GetOptions: ...

    def unless(self, version: str) -> GetOptions:
        """A condition that spares the answer's body; empty where the service knows none by this version."""
        ...


class ETags:
    """S3 and Azure: the entity tag, kept without its quotes, which listings leave out."""

    def of(self, meta: RemoteMeta | PutResult) -> str:
        return (meta["e_tag"] or "").strip('"')

    def for_update(self, version: str) -> UpdateVersion:
        return {"e_tag": f'"{version}"'}

    def for_read(self, version: str) -> GetOptions:
        return {"if_match": f'"{version}"'}

    def unless(self, version: str) -> GetOptions:
        return {"if_none_match": f'"{version}"'}


class Generations:
    """Google: a number that grows with every write. Listings do not tell it, so their versions are empty."""

    def of(self, meta: RemoteMeta | PutResult) -> str:
        return meta["version"] or ""

    def for_update(self, version: str) -> UpdateVersion:
        return {"version": version}

    def for_read(self, version: str) -> GetOptions:
        return {"version": version}

    def unless(self, version: str) -> GetOptions:
        return {}


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """Options of all three services."""

    # Address of the service, if it is not the provider's own.
    endpoint: str | None = None
    # Whether to allow HTTP without TLS. None allows it if the endpoint, here or in the environment, begins with
    # `http:`.
    allow_http: bool | None = None
    # Time limit of one request, in seconds.
    request_seconds_max: float = REQUEST_SECONDS_MAX
    # Time limit for a connection, in seconds.
    connect_seconds_max: float = CONNECT_SECONDS_MAX
    # Whether the service lists keys in byte order; otherwise they are sorted here. None trusts only the
    # provider's own service at its own address.
    ordered_listing: bool | None = None

    def _client(self) -> ClientConfig:
        # Without an endpoint here it is the service's own, with TLS, or one the environment spells out.
        asks_for_http = self.endpoint is None or self.endpoint.startswith("http://")
        return {
            "timeout": timedelta(seconds=self.request_seconds_max),
            "connect_timeout": timedelta(seconds=self.connect_seconds_max),
            "allow_http": asks_for_http if self.allow_http is None else self.allow_http,
        }


@dataclass(frozen=True, kw_only=True)
class S3Options(ServiceOptions):
    """Amazon S3 and compatible services."""

    # Region of the bucket. Default: from the environment.
    region: str | None = None
    # Access key id. Default: from the environment.
    access_key_id: str | None = None
    # Secret access key. Default: from the environment.
    secret_access_key: str | None = field(default=None, repr=False)
    # Session token. Default: from the environment.
    session_token: str | None = field(default=None, repr=False)
    # Whether the bucket is part of the path, which every compatible service understands, instead of the host
    # name.
    path_style: bool = True
    # Whether to send unsigned requests, for public buckets.
    anonymous: bool = False
    # Encryption at rest of everything that is written: `AES256` (SSE-S3), `aws:kms`, `aws:kms:dsse` or `sse-c`.
    # None leaves it to the bucket's default.
    encryption: str | None = None
    # Key of `aws:kms`. None is the account's default key for S3.
    kms_key_id: str | None = None
    # Whether S3 derives a key for the bucket, which calls KMS less often.
    kms_bucket_key: bool | None = None
    # Key of `sse-c`: 32 bytes in base64 (`openssl rand -base64 32`). Data cannot be read without it. It applies
    # to the store, not to buckets of documents.
    customer_key: str | None = field(default=None, repr=False)

    def connect(self, bucket: str) -> Remote:
        check_encryption(self.encryption, self.kms_key_id, self.kms_bucket_key, self.customer_key)
        config = _given(
            server_side_encryption=self.encryption,
            sse_kms_key_id=self.kms_key_id,
            sse_bucket_key_enabled=self.kms_bucket_key,
            sse_customer_key_base64=self.customer_key,
            endpoint=self._endpoint(bucket),
            region=self.region,
            access_key_id=self.access_key_id,
            secret_access_key=self.secret_access_key,
            session_token=self.session_token,
            virtual_hosted_style_request=None if self.path_style else True,
            skip_signature=self.anonymous or None,
        )
        store = S3Store(bucket, config=config, client_options=self._client(), retry_config=_NO_RETRIES)
        return Remote(store, ETags(), self.ordered_listing)

    def _endpoint(self, bucket: str) -> str | None:
        if self.endpoint is None or self.path_style:
            return self.endpoint
        parts = urlsplit(self.endpoint)
        return parts._replace(netloc=f"{bucket}.{parts.netloc}").geturl()


@dataclass(frozen=True, kw_only=True)
class AzureOptions(ServiceOptions):
    """Azure Blob Storage."""

    # Storage account. Default: from the environment.
    account_name: str | None = None
    # Key of the storage account. Default: from the environment.
    account_key: str | None = field(default=None, repr=False)
    # Shared access signature, instead of the key.
    sas_token: str | None = field(default=None, repr=False)

    def connect(self, bucket: str) -> Remote:
        config = _given(
            endpoint=self.endpoint,
            account_name=self.account_name,
            account_key=self.account_key,
            sas_key=self.sas_token,
        )
        store = AzureStore(bucket, config=config, client_options=self._client(), retry_config=_NO_RETRIES)
        return Remote(store, ETags(), self.ordered_listing)


@dataclass(frozen=True, kw_only=True)
class GoogleOptions(ServiceOptions):
    """Google Cloud Storage."""

    # Service account key, as the path of its file or as JSON text.
    service_account: str | None = field(default=None, repr=False)
    # Service account key, as JSON text. Default: application default credentials.
    service_account_key: str | None = field(default=None, repr=False)
    # Access token obtained elsewhere.
    bearer_token: str | None = field(default=None, repr=False)
    # Whether to send no credentials, for public buckets.
    anonymous: bool = False

    def connect(self, bucket: str) -> Remote:
        # The client knows two options, and repeats the one for a path in its errors.
        is_text = self.service_account is not None and self.service_account.lstrip().startswith("{")
        config = _given(
            base_url=self.endpoint,
            service_account=None if is_text else self.service_account,
            service_account_key=self.service_account if is_text else self.service_account_key,
            bearer_token=self.bearer_token,
            skip_signature=self.anonymous or None,
        )
        store = GCSStore(bucket, config=config, client_options=self._client(), retry_config=_NO_RETRIES)
        return Remote(store, Generations(), self.ordered_listing)


SERVICES: Final[dict[str, type[S3Options | AzureOptions | GoogleOptions]]] = {
    "s3": S3Options,
    "az": AzureOptions,
    "gs": GoogleOptions,
}


def connect(url: str, bucket: str, options: S3Options | AzureOptions | GoogleOptions) -> Remote:
    """The client for one bucket. Nothing is sent yet."""
    check_sendable(vars(options))
    if options.endpoint is not None:
        check_endpoint(options.endpoint)
    try:
        return options.connect(bucket)
    except (exceptions.BaseError, ValueError, TypeError, OverflowError, OSError) as error:
        why = str(error).split("\n\nDebug source", 1)[0]
        raise InvalidInput(f"{url} cannot be opened", why, "check the options and the environment") from error


@cache
def _client_home() -> Home:
    """Where the client was first used: it starts its threads once, for all stores of a process."""
    rest_native_threads_at_exit()
    return Home()


def is_own_address(host: str) -> bool:
    """Whether a host is of the three services themselves, which list in byte order. Look-alikes often do not."""
    return host.endswith(_OWN_HOSTS)


def _given(**settings: Any) -> Any:
    """The settings that were given; what is left out, the client looks up in the environment."""
    return {name: value for name, value in settings.items() if value is not None}
