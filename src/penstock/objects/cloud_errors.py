"""What a cloud store's answer, or the lack of one, means to the caller.

The client gives its errors as text, so this module reads that text; the tests hold it to what real
servers and cut connections produce. Two things decide: whether a write may have been carried out,
and whether the same call can succeed later.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

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

__all__ = ["Answer", "explain"]

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w+)</Code>|code: \"(\w+)\"")
_MESSAGE: Final = re.compile(r"<Message>([^<]*)")
_KIND: Final = re.compile(r"HttpError \{\s*kind: (\w+)")
# What the operating system or the resolver said, deep in the client's error.
_CAUSE: Final = re.compile(r"(?:message|error): \"([^\"]+)\"")
_ADDRESS: Final = re.compile(r"Error performing [A-Z]+ https?://([^/\s:]+)")
_TEXT_CHARS_MAX: Final = 300

_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound", "specified container does not exist")
_NO_CREDENTIALS: Final = ("169.254.169.254", "169.254.170.2", "metadata.google.internal", "/metadata/identity/")
_FULL: Final = re.compile(r"Quota|StorageFull|InsufficientStorage|InsufficientCapacity")


@dataclass(frozen=True, slots=True)
class Answer:
    """An error of the client, read."""

    status: int | None
    # The service's own word, such as `NoSuchBucket`.
    code: str
    # How the connection failed, when there was no status: `Connect`, `Timeout`, `Interrupted` ...
    kind: str
    text: str
    # The client's debugging text as a whole, for words that appear nowhere else.
    detail: str

    @classmethod
    def of(cls, error: Exception) -> Answer:
        detail = str(error)
        display = detail.split("\n\nDebug source", 1)[0]
        status = _STATUS.search(display)
        code = _CODE.search(detail)
        kind = _KIND.search(detail)
        message = _MESSAGE.search(display)
        cause = _CAUSE.search(detail)
        text = message.group(1).split("\n")[0] if message else display.rsplit(" - ", 1)[-1]
        text = f"{text}: {cause.group(1)}" if cause else text
        return cls(
            int(status.group(1)) if status else _status_of(error),
            (code.group(1) or code.group(2)) if code else "",
            kind.group(1) if kind else "",
            text.strip()[:_TEXT_CHARS_MAX],
            detail,
        )

    @property
    def is_past_end(self) -> bool:
        """A range that starts at or past the end of the object."""
        return self.status == 416 or "StartTooLarge" in self.detail

    @property
    def is_conflict(self) -> bool:
        """A condition did not hold. To a condition on a version, an object that is gone is one more change."""
        return self.status in (304, 404, 409, 412) and not self.is_missing_bucket

    @property
    def is_missing_bucket(self) -> bool:
        return any(word in self.detail for word in _NO_BUCKET)

    @property
    def host(self) -> str:
        """Where the request went, an endpoint from the environment included."""
        address = _ADDRESS.search(self.detail)
        return address.group(1) if address else ""

    @property
    def is_refused_unread(self) -> bool:
        """The request was never sent, or was turned away before it was looked at."""
        return self.kind == "Connect" or self.status == 429 or self.code == "SlowDown"


def explain(answer: Answer, what: str, bucket: str, *, is_write: bool) -> PenstockError:
    """The error for a call that failed for another reason than its object or its condition."""
    if answer.is_missing_bucket:
        return NotFound(what, f"there is no bucket or container {bucket!r}", "create it, or correct the URL")
    if any(word in answer.detail for word in _NO_CREDENTIALS):
        return PermissionDenied(what, "no credentials were found", "set the service's usual environment variables")
    if answer.status == 507 or _FULL.search(answer.code):
        return StorageFull(what, answer.text, "free some room or raise the quota; nothing was written")
    if answer.status in (401, 403):
        return PermissionDenied(what, answer.text or "the service refused these credentials", "check the credentials")
    if answer.is_refused_unread:
        return Unavailable(what, answer.text, "check that the service is up and the endpoint right")
    if answer.status == 501:
        return Unsupported(what, answer.text or "the service does not implement this")
    if "BadScheme" in answer.detail:
        return InvalidInput(what, "the endpoint is plain HTTP", "use https, or give allow_http=True")
    if "BareRedirect" in answer.detail or answer.status == 301:
        return InvalidInput(what, "the bucket is in another region", "set region to the bucket's own")
    if answer.status == 404:
        return NotFound(what, answer.text or "it is not there")
    if answer.status is not None and 400 <= answer.status < 500 and answer.status not in (408, 409, 412, 425):
        return InvalidInput(what, f"the service answered {answer.status}: {answer.text}")
    if is_write:
        return OutcomeUnknown(what, f"the answer was lost: {answer.text}", "read it again before deciding")
    return Unavailable(what, answer.text, "try again later")


def _status_of(error: Exception) -> int | None:
    """The status behind a typed error whose text does not give it."""
    if isinstance(error, FileNotFoundError):
        return 404
    if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
        return 403
    if isinstance(error, exceptions.AlreadyExistsError | exceptions.PreconditionError | exceptions.NotModifiedError):
        return 412
    if isinstance(error, exceptions.NotSupportedError):
        return 501
    return None
