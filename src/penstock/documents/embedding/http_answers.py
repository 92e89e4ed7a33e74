"""What the status of a model's endpoint means: 429, 408 and 5xx "later", 400, 413 and 422 "refused", others raise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.clock import Clock
from penstock.documents.embedding.provider import Later, Refused
from penstock.documents.embedding.redaction import redacted
from penstock.errors import InvalidInput, NotFound, PermissionDenied

if TYPE_CHECKING:
    import httpx

__all__ = ["answer_of_status", "unreachable"]

_LATER: Final = frozenset({408, 409, 425, 429})
_REFUSED: Final = frozenset({400, 413, 422})
_REASON_CHARACTERS_MAX: Final = 300


def unreachable(error: httpx.RequestError) -> Later:
    return Later(f"{type(error).__name__}: {redacted(str(error))}"[:_REASON_CHARACTERS_MAX])


def answer_of_status(
    response: httpx.Response, what: str, clock: Clock, *, secret: str | None = None, texts: Sequence[str] = ()
) -> Later | Refused:
    """The answer behind a status other than 200; `what` begins the error of those that no repeat can heal.

    A reason is stored and shown: without the `secret` that was sent, and without what it quotes of `texts`.
    """
    status, told = response.status_code, redacted(response.text, secrets=[secret], texts=texts)
    reason = f"{status}: {told[:_REASON_CHARACTERS_MAX]}"
    if status in _LATER or status >= 500:
        return Later(reason, _retry_after(response.headers.get("retry-after"), clock))
    if status in _REFUSED:
        return Refused(reason)
    if status in (401, 403):
        raise PermissionDenied(what, reason, "check its key")
    if status == 404:
        raise NotFound(what, reason, "check its address and the model's name")
    raise InvalidInput(what, reason)


def _retry_after(value: str | None, clock: Clock) -> float | None:
    """Seconds, or a date."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    # A date is rare, and what reads one takes longer to load than to run.
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - clock.now_ms() / 1000)
    except (ValueError, TypeError):
        return None
