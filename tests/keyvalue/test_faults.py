"""Each of SlateDB's errors says in our words what it means for the caller."""

from __future__ import annotations

from urllib.parse import quote
from xml.sax.saxutils import escape

import pytest
from slatedb import uniffi

from penstock.errors import (
    Closed,
    Corrupt,
    Fenced,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    PenstockError,
    PermissionDenied,
    StorageFull,
    Unavailable,
)
from penstock.keyvalue.faults import translated, translating

Error = uniffi.Error
Reason = uniffi.CloseReason


def answered(status: str, code: str, path: str = "store") -> str:
    """As the client writes it: the object's name as it is, then the address, then the service's answer."""
    return (
        f"Unavailable error: object store error (Object at location {path} not found: Error performing GET "
        f"http://host/b/{quote(path)} in 2.5ms - Server returned non-2xx status code: {status}: "
        f'<?xml version="1.0"?><Error><Code>{code}</Code><Key>{escape(path)}</Key></Error>)'
    )


BUCKET_GONE = answered("404 Not Found", "NoSuchBucket")
FORBIDDEN = answered("403 Forbidden", "SignatureDoesNotMatch")
SHORT = "Unavailable error: object store error (Generic LocalFileSystem error: Requested range was invalid)"
FULL = "object store error (Unable to copy data to file: No space left on device (os error 28))"
NO_MANIFEST = "Data error: failed to find latest transactional object (e.g. manifest) version"
TORN_MANIFEST = "generic transactional object (e.g. manifest) error CallbackError(RangeOutOfBounds)"


@pytest.mark.parametrize(
    ("error", "reading", "writing"),
    [
        (Error.Closed(Reason.FENCED, "newer"), Fenced, Fenced),
        (Error.Closed(Reason.CLEAN, "closed"), Closed, Closed),
        (Error.Closed(Reason.PANIC, "panic"), Unavailable, OutcomeUnknown),
        (Error.Closed(Reason.UNKNOWN, "?"), Unavailable, OutcomeUnknown),
        (Error.Unavailable("HTTP error: error sending request"), Unavailable, OutcomeUnknown),
        (Error.Unavailable(BUCKET_GONE), NotFound, NotFound),
        (Error.Data(BUCKET_GONE), NotFound, NotFound),
        (Error.Data(answered("404 Not Found", "NoSuchKey")), Corrupt, Corrupt),
        (Error.Data(answered("404 Not Found", "NoSuchKey").replace("GET", "PUT")), Unavailable, OutcomeUnknown),
        (Error.Unavailable(FORBIDDEN), PermissionDenied, PermissionDenied),
        (Error.Unavailable(FULL), StorageFull, StorageFull),
        (Error.Unavailable(FULL.replace("28", "13")), PermissionDenied, PermissionDenied),
        (Error.Unavailable(answered("401 Unauthorized", "x")), PermissionDenied, PermissionDenied),
        (Error.Unavailable(answered("507 Insufficient Storage", "x")), StorageFull, StorageFull),
        (Error.Unavailable(answered("416 Range Not Satisfiable", "InvalidRange")), Corrupt, Corrupt),
        (Error.Unavailable(SHORT), Corrupt, Corrupt),
        (Error.Invalid("key cannot be empty"), InvalidInput, InvalidInput),
        (Error.Invalid("invalid compaction"), Corrupt, Corrupt),
        (Error.Data("checksum mismatch"), Corrupt, Corrupt),
        (Error.Data(NO_MANIFEST), NotFound, NotFound),
        (Error.Internal(TORN_MANIFEST), Corrupt, Corrupt),
        (Error.Internal("something else"), Unavailable, OutcomeUnknown),
        (uniffi.InternalError("panicked"), Unavailable, OutcomeUnknown),
    ],
)
def test_an_error_is_translated_by_what_it_means(
    error: Exception, reading: type[PenstockError], writing: type[PenstockError]
) -> None:
    assert type(translated(error, "s3://b/store")) is reading
    assert type(translated(error, "s3://b/store", writing=True)) is writing


def test_a_translated_error_names_the_store_and_keeps_the_cause() -> None:
    cause = Error.Unavailable(FORBIDDEN)
    with pytest.raises(PermissionDenied, match="s3://bucket/store") as raised, translating("s3://bucket/store"):
        raise cause
    assert "SignatureDoesNotMatch" in raised.value.why
    assert raised.value.__cause__ is cause


def test_errors_that_are_not_slatedbs_pass_as_they_are() -> None:
    with pytest.raises(KeyError), translating("s3://bucket/store"):
        raise KeyError("ours")


def test_a_long_answer_of_the_store_is_cut() -> None:
    assert len(translated(Error.Unavailable("x" * 10_000), "s3://b/store").why) < 1000


@pytest.mark.parametrize(
    "path",
    ["x/NoSuchBucket", "403 Forbidden", "Permission denied", "<Code>NoSuchBucket</Code>", "InvalidRange"],
)
def test_a_stores_name_decides_nothing(path: str) -> None:
    busy = Error.Unavailable(answered("503 Service Unavailable", "SlowDown", path))
    cut = Error.Unavailable(
        f"object store error (Error performing PUT http://h/b/{quote(path)} in 1ms - HTTP error: x)"
    )
    for error in (busy, cut):
        assert type(translated(error, f"s3://b/{path}")) is Unavailable
