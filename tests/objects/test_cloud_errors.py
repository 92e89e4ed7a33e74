"""What the client's errors mean. Their texts are as the client writes them; the servers are in test_cloud.py."""

from __future__ import annotations

import pytest
from obstore import exceptions

from penstock.errors import (
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    PenstockError,
    PermissionDenied,
    StorageFull,
    Unavailable,
    Unsupported,
)
from penstock.objects.cloud_errors import Answer, explain


def status(code: int, body: str = "") -> Exception:
    text = f"Generic S3 error: Error performing PUT http://host:1/b/k in 1ms - Server returned non-2xx status code: {code} X: {body}"
    return exceptions.GenericError(f"{text}\n\nDebug source:\nGeneric {{ status: {code} }}")


def broken(kind: str, cause: str = "") -> Exception:
    detail = f'HttpError {{\n  kind: {kind},\n  source: Os {{ message: "{cause}" }} }}'
    return exceptions.GenericError(
        f"Generic S3 error: Error performing PUT http://host:1/b/k in 1ms - HTTP error: error sending request\n\nDebug source:\n{detail}"
    )


def code(word: str) -> str:
    return f"<Error><Code>{word}</Code><Message>said {word}</Message></Error>"


SURE = [
    (status(404, code("NoSuchBucket")), NotFound),
    (status(404, code("ContainerNotFound")), NotFound),
    (status(401), PermissionDenied),
    (status(403, code("SignatureDoesNotMatch")), PermissionDenied),
    (exceptions.PermissionDeniedError("no"), PermissionDenied),
    (exceptions.UnauthenticatedError("no"), PermissionDenied),
    (status(429), Unavailable),
    (status(503, code("SlowDown")), Unavailable),
    (broken("Connect", "Connection refused"), Unavailable),
    (status(507), StorageFull),
    (status(403, code("QuotaExceeded")), StorageFull),
    (status(400, code("XMinioStorageFull")), StorageFull),
    (status(501), Unsupported),
    (exceptions.NotSupportedError("no"), Unsupported),
    (status(400, code("AuthorizationHeaderMalformed")), InvalidInput),
    (status(413), InvalidInput),
    (exceptions.GenericError("x\n\nDebug source:\ninner: BareRedirect"), InvalidInput),
    (exceptions.GenericError("x\n\nDebug source:\nsource: BadScheme"), InvalidInput),
    (exceptions.GenericError("Error performing PUT http://169.254.169.254/latest/api/token in 2ms"), PermissionDenied),
]
UNSURE = [
    *(status(number) for number in (408, 500, 502, 503, 504)),
    *(broken(kind) for kind in ("Timeout", "Interrupted", "Request", "Unknown", "Decode")),
    exceptions.GenericError("Generic S3 error: Unable to extract metadata from headers: ETag Header missing"),
]


@pytest.mark.parametrize("is_write", [False, True])
@pytest.mark.parametrize(("error", "kind"), SURE)
def test_a_clear_answer_means_the_same_to_reads_and_writes(
    error: Exception, kind: type[PenstockError], is_write: bool
) -> None:
    assert type(explain(Answer.of(error), "what", "bucket", is_write=is_write)) is kind


@pytest.mark.parametrize("error", UNSURE)
def test_a_lost_answer_is_unavailable_to_a_read_and_unknown_to_a_write(error: Exception) -> None:
    assert type(explain(Answer.of(error), "what", "bucket", is_write=False)) is Unavailable
    assert type(explain(Answer.of(error), "what", "bucket", is_write=True)) is OutcomeUnknown


def test_the_services_own_words_are_passed_on() -> None:
    assert "said AccessDenied" in str(explain(Answer.of(status(403, code("AccessDenied"))), "w", "b", is_write=False))
    refused = explain(Answer.of(broken("Connect", "Connection refused")), "what", "bucket", is_write=True)
    assert "Connection refused" in str(refused)


def test_a_missing_bucket_is_told_from_a_missing_object() -> None:
    bucket = Answer.of(
        FileNotFoundError("Object at location k not found: - status code: 404 Not Found: " + code("NoSuchBucket"))
    )
    key = Answer.of(
        FileNotFoundError("Object at location k not found: - status code: 404 Not Found: " + code("NoSuchKey"))
    )
    assert (bucket.is_missing_bucket, key.is_missing_bucket) == (True, False)
    assert (bucket.is_conflict, key.is_conflict) == (False, True)
    assert "'bucket'" in str(explain(bucket, "what", "bucket", is_write=True))


@pytest.mark.parametrize(
    "kind", [exceptions.AlreadyExistsError, exceptions.PreconditionError, exceptions.NotModifiedError]
)
def test_a_failed_condition_is_a_conflict(kind: type[Exception]) -> None:
    assert Answer.of(kind("no status in the text")).is_conflict


def test_a_range_past_the_end_is_recognised_in_both_forms() -> None:
    assert Answer.of(status(416)).is_past_end
    assert Answer.of(exceptions.GenericError("x\n\nDebug source:\nStartTooLarge { requested: 10 }")).is_past_end
    assert not Answer.of(status(404)).is_past_end


def test_the_address_is_read_from_the_error() -> None:
    assert Answer.of(status(404)).host == "host"
    assert Answer.of(exceptions.GenericError("nothing")).host == ""
