"""What a cloud store's answer, or the lack of one, means to the caller.

Two things decide: whether a write may have been carried out, and whether the same call can succeed later. Both follow
from the status and the service's error code, never from words that a key could contain.
"""

from __future__ import annotations

import re
from typing import Final

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

__all__ = ["explain"]

_REDIRECTS: Final = (301, 302, 303, 307, 308)
_FULL: Final = re.compile(r"Quota|StorageFull|InsufficientStorage|InsufficientCapacity")


def explain(answer: CloudAnswer, what: str, bucket: str, *, is_write: bool) -> PenstockError:
    """The error for a call that failed for another reason than its object or its condition."""
    if answer.is_missing_bucket:
        return NotFound(what, f"there is no bucket or container {bucket!r}", "create it, or correct the URL")
    if answer.is_without_credentials:
        return PermissionDenied(what, "no credentials were found", "set the service's usual environment variables")
    if answer.status == 507 or _FULL.search(answer.code):
        return StorageFull(what, answer.text, "free some room or raise the quota; nothing was written")
    if answer.status in (401, 403):
        return PermissionDenied(what, answer.text or "the service rejected these credentials", "check the credentials")
    if answer.is_refused_unread:
        return Unavailable(what, answer.text, "check that the service is up and the endpoint right")
    if answer.status == 501:
        return Unsupported(what, answer.text or "the service does not implement this")
    if answer.fault in ("BadScheme", "InvalidPath"):
        return _refused_by_the_client(answer, what)
    if answer.fault == "BareRedirect" or answer.status in _REDIRECTS:
        return _redirected(answer, what)
    if answer.status == 404:
        return NotFound(what, answer.text or "it is not there")
    if answer.status is not None and 400 <= answer.status < 500 and answer.status not in (408, 409, 412, 425):
        return InvalidInput(what, f"the service answered {answer.status}: {answer.text}")
    if is_write:
        return OutcomeUnknown(what, f"the answer was lost: {answer.text}", "read it again before deciding")
    return Unavailable(what, answer.text, "try again later")


def _refused_by_the_client(answer: CloudAnswer, what: str) -> PenstockError:
    if answer.fault == "BadScheme":
        return InvalidInput(what, "the endpoint is plain HTTP", "use https, or give allow_http=True")
    return Unsupported(what, answer.text, "rename the object, or list prefixes without it")


def _redirected(answer: CloudAnswer, what: str) -> PenstockError:
    if answer.fault == "BareRedirect" or answer.code == "PermanentRedirect":
        return InvalidInput(what, "the bucket is in another region", "set region to the bucket's own")
    if answer.code == "TemporaryRedirect":
        # S3 says so of a bucket whose name is not known everywhere yet.
        return Unavailable(what, answer.text, "try again later")
    why = f"{answer.authority or 'the endpoint'} answered {answer.status} and names another address"
    return InvalidInput(
        what, why, "set endpoint to the service itself: https instead of http, and no login page in between"
    )
