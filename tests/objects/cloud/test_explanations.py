"""What the client's errors mean. Their texts are as the client writes them; the servers are in test_cloud.py."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

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
from penstock.objects.cloud.answer import CloudAnswer
from penstock.objects.cloud.explanations import explain


def status(code: int, body: str = "", path: str = "k") -> Exception:
    line = f"Error performing PUT {address(path)} in 1ms - Server returned non-2xx status code: {code} X: {body}"
    inner = f'inner: Status {{\n status: {code},\n body: Some(\n "{escaped(body)}",\n ),\n }}'
    return exceptions.GenericError(f"Generic S3 error: {line}{tree(path, inner)}")


def broken(kind: str, cause: str = "", path: str = "k") -> Exception:
    inner = f'inner: Http(HttpError {{\n  kind: {kind},\n  source: Os {{ message: "{cause}" }} }})'
    line = f"Error performing PUT {address(path)} in 1ms - HTTP error: error sending request"
    return exceptions.GenericError(f"Generic S3 error: {line}{tree(path, inner)}")


def tree(path: str, inner: str, at: str | None = None) -> str:
    uri = f"uri: Some(\n  {at or address(path)},\n)"
    return f'\n\nDebug source:\nGeneric {{\n path: "{escaped(path)}",\n {uri},\n {inner}\n}}'


def address(path: str) -> str:
    return f"http://host:1/b/{quote(path)}"


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


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
    (status(301, code("PermanentRedirect")), InvalidInput),
    *((status(number, "<html>moved</html>"), InvalidInput) for number in (301, 302, 303, 307, 308)),
    (status(307, code("TemporaryRedirect")), Unavailable),
    (exceptions.GenericError("x" + tree("k", "", "http://169.254.169.254/latest/api/token")), PermissionDenied),
    (exceptions.GenericError("x" + tree("k", "", "http://localhost:40342/metadata/identity/x")), PermissionDenied),
    (
        exceptions.GenericError('x\n\nDebug source:\nConnectError(\n "tcp connect error",\n 169.254.169.254:80,\n'),
        PermissionDenied,
    ),
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
    assert type(explain(CloudAnswer.of(error), "what", "bucket", is_write=is_write)) is kind


@pytest.mark.parametrize("error", UNSURE)
def test_a_lost_answer_is_unavailable_to_a_read_and_unknown_to_a_write(error: Exception) -> None:
    assert type(explain(CloudAnswer.of(error), "what", "bucket", is_write=False)) is Unavailable
    assert type(explain(CloudAnswer.of(error), "what", "bucket", is_write=True)) is OutcomeUnknown


def test_the_services_own_words_are_passed_on() -> None:
    assert "said AccessDenied" in str(
        explain(CloudAnswer.of(status(403, code("AccessDenied"))), "w", "b", is_write=False)
    )
    refused = explain(CloudAnswer.of(broken("Connect", "Connection refused")), "what", "bucket", is_write=True)
    assert "Connection refused" in str(refused)


def test_an_endpoint_that_sends_elsewhere_is_not_taken_for_a_region() -> None:
    """A load balancer that wants https, or a login page: trying again for a minute changes nothing."""
    moved = explain(CloudAnswer.of(status(301, "<html>")), "what", "bucket", is_write=False)
    assert "host:1 answered 301" in str(moved)
    assert "region" not in str(moved)
    assert "region" in str(explain(CloudAnswer.of(status(301, code("PermanentRedirect"))), "w", "b", is_write=False))


def test_a_missing_bucket_is_told_from_a_missing_object() -> None:
    bucket = CloudAnswer.of(FileNotFoundError(str(status(404, code("NoSuchBucket")))))
    key = CloudAnswer.of(FileNotFoundError(str(status(404, code("NoSuchKey")))))
    assert (bucket.is_missing_bucket, key.is_missing_bucket) == (True, False)
    assert (bucket.is_conflict, key.is_conflict) == (False, True)
    assert "'bucket'" in str(explain(bucket, "what", "bucket", is_write=True))


@pytest.mark.parametrize(
    "kind", [exceptions.AlreadyExistsError, exceptions.PreconditionError, exceptions.NotModifiedError]
)
def test_a_failed_condition_is_a_conflict(kind: type[Exception]) -> None:
    assert CloudAnswer.of(kind("no status in the text")).is_conflict


def test_a_range_past_the_end_is_recognised_in_both_forms() -> None:
    assert CloudAnswer.of(status(416)).is_past_end
    assert CloudAnswer.of(exceptions.GenericError("x\n\nDebug source:\nStartTooLarge { requested: 10 }")).is_past_end
    assert not CloudAnswer.of(status(404)).is_past_end


def test_the_address_is_read_from_the_error() -> None:
    assert CloudAnswer.of(status(404)).host == "host"
    assert CloudAnswer.of(exceptions.GenericError("nothing")).host == ""


# Everything that the client's errors are searched for, as the name of an object.
HOSTILE_KEYS = (
    "a/StartTooLarge.txt",
    "x/NoSuchBucket",
    "x/ContainerNotFound",
    "The specified container does not exist",
    "v1/metadata/identity/oauth2",
    "169.254.169.254/latest",
    "metadata.google.internal",
    "BadScheme/BareRedirect",
    "<Code>NoSuchBucket</Code>",
    'code: "SlowDown", kind: Connect',
    'x", inner: Status { status: 507, body: None }, y: "',
    "status code: 403 Forbidden",
    "HttpError { kind: Connect",
    "Error performing GET http://169.254.169.254/ in 1ms - x",
)


@pytest.mark.parametrize("key", HOSTILE_KEYS)
@pytest.mark.parametrize("made", [lambda key: status(503, code("Busy"), key), lambda key: broken("Timeout", "", key)])
def test_a_keys_name_decides_nothing(made: Callable[[str], Exception], key: str) -> None:
    answer, plain = CloudAnswer.of(made(key)), CloudAnswer.of(made("k"))
    assert answer == plain
    assert type(explain(answer, "what", "bucket", is_write=True)) is OutcomeUnknown


@pytest.mark.parametrize("key", HOSTILE_KEYS)
def test_a_key_that_the_service_quotes_decides_nothing(key: str) -> None:
    body = f"<Error><Code>NoSuchKey</Code><Message>none</Message><Key>{key}</Key></Error>"
    answer = CloudAnswer.of(FileNotFoundError(str(status(404, body, key))))
    assert (answer.status, answer.code, answer.text) == (404, "NoSuchKey", "none")
    assert answer.is_conflict
