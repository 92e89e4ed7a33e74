"""Errors as answers: which status an error of the house becomes, and its JSON.

What is not there and what belongs to somebody else are one answer. Messages of unforeseen errors, and of stores and
services that fail, stay in the log: they may quote data, paths, buckets or secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.errors import (
    AtCapacity,
    Closed,
    Conflict,
    Corrupt,
    DeadlineExceeded,
    Fenced,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    PenstockError,
    PermissionDenied,
    StorageFull,
    Unavailable,
    Unsupported,
)
from penstock.gateway.access.limits import TooMany
from penstock.gateway.access.tokens import Forbidden, Unauthenticated
from penstock.gateway.http.bodies import BodyTooLarge, BodyTooSlow

__all__ = ["TOLD", "Refusal", "refusal_of"]

# The first that fits counts.
_STATUSES: Final[tuple[tuple[type[BaseException], int], ...]] = (
    (Unauthenticated, 401),
    (Forbidden, 403),
    # Of a store or a model that refuses the gateway.
    (PermissionDenied, 503),
    (BodyTooLarge, 413),
    (BodyTooSlow, 408),
    (InvalidInput, 400),
    (Unsupported, 415),
    (NotFound, 404),
    (Conflict, 409),
    (TooMany, 429),
    (AtCapacity, 429),
    (StorageFull, 503),
    (DeadlineExceeded, 503),
    (Unavailable, 503),
    (OutcomeUnknown, 503),
    (Closed, 503),
    (Fenced, 503),
    (Corrupt, 500),
)
# What fails behind the gateway, as clients hear it: what, and what to do.
_BEHIND: Final[tuple[tuple[type[PenstockError], str, str], ...]] = (
    (StorageFull, "the gateway has no space left", "try again later"),
    (DeadlineExceeded, "a store or a service did not answer in time", "ask for less, or try again later"),
    (Unavailable, "a store or a service is not available", "try again later"),
    (OutcomeUnknown, "it is not known whether the request was stored", "look for it before you send it again"),
    (Closed, "the gateway is closing", "try again later"),
    (Fenced, "another process took over", "try again later"),
)
_LOGGED: Final = "the gateway's log has the reason"
# Of the same kinds, what is about the request itself, in words that name nothing of the server's: clients read these.
TOLD: Final = frozenset(
    {
        "the document is not searchable yet",
        "the gateway holds too many bytes",
        "the query took too long",
        "the query was interrupted",
        "the query was not started",
        "the query's process was killed",
    }
)
# Whoever is told to come back later, and nothing is known of when.
_RETRY_AFTER: Final = {429: 1, 503: 5}


class Refusal(msgspec.Struct, frozen=True):
    """An error as it is answered."""

    status: int
    error: str
    what: str
    why: str = ""
    remedy: str = ""
    retry_after_seconds: int | None = None
    # Whether the error says more than a client is told; then the log has it.
    is_hidden: bool = False

    @property
    def headers(self) -> dict[str, str]:
        headers = {}
        if self.retry_after_seconds is not None:
            headers["retry-after"] = str(self.retry_after_seconds)
        if self.status == 401:
            headers["www-authenticate"] = 'Bearer realm="penstock"'
        return headers

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in _RETRY_AFTER

    def body(self) -> Mapping[str, Any]:
        told = {"error": self.error, "what": self.what, "why": self.why, "remedy": self.remedy}
        return {name: value for name, value in told.items() if value}

    def __str__(self) -> str:
        text = f"{self.what}: {self.why}" if self.why else self.what
        return f"{text} ({self.remedy})" if self.remedy else text


def refusal_of(error: BaseException) -> Refusal:
    """What a client is told of an error."""
    if isinstance(error, TimeoutError) and not isinstance(error, PenstockError):
        # Of `asyncio.timeout` around a query.
        return Refusal(503, "DeadlineExceeded", "the request took too long", "its time is up", "ask for less", 5)
    if not isinstance(error, PenstockError):
        why = "an unforeseen error; the gateway's log has it"
        return Refusal(500, "Internal", "the request failed", why, is_hidden=True)
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    if isinstance(error, Corrupt):
        # It names files and offsets of the store.
        return Refusal(status, "Corrupt", "stored data is damaged", "the gateway's log names it", is_hidden=True)
    if isinstance(error, PermissionDenied) and status == 503:
        what, why = "the gateway was refused by a store or a service", "the gateway's log names it"
        return Refusal(status, "Unavailable", what, why, "try again later", _RETRY_AFTER[503], is_hidden=True)
    for kind, what, remedy in _BEHIND:
        if isinstance(error, kind) and error.what not in TOLD:
            return Refusal(status, kind.__name__, what, _LOGGED, remedy, _RETRY_AFTER[status], is_hidden=True)
    retry = error.retry_after_seconds if isinstance(error, TooMany) else _RETRY_AFTER.get(status)
    return Refusal(status, type(error).__name__, error.what, error.why, error.remedy, retry)
