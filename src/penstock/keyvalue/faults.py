"""SlateDB's errors in Penstock's words, each naming the store it happened to.

What a failed write means is decided here: `Fenced` and `StorageFull` mean it is not there; any other
failure of a write that was accepted is `OutcomeUnknown`, because the object may have landed although
its answer did not. A failed read is always safe to repeat.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

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

__all__ = ["is_no_store", "translated", "translating"]

# SlateDB reports every fault of the object store as one kind, with the client's line as text. What a service answered
# stands behind the address, in which names are encoded; what the system said is a number. Nothing else is looked at: the
# line also names objects as they are.
_ANSWER: Final = re.compile(
    r"Error performing ([A-Z]+) \S+ in \S+ - Server returned non-2xx status code: (\d{3})[^:]*:(?:.*?<Code>(\w+)</Code>)?",
    re.DOTALL,
)
_SYSTEM: Final = re.compile(r"\(os error (\d+)\)")
_ABSENT: Final = ("NoSuchBucket", "ContainerNotFound")
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_NO_STORE: Final = "failed to find latest transactional object"
# A read past the end of a file that the manifest gives more bytes to: files never change, so it was cut short.
_SHORT: Final = "error: Requested range was invalid"
_TORN: Final = ("transactional object", "empty manifest", "invalid compaction")
_WHY_CHARACTERS_MAX: Final = 400


@contextmanager
def translating(place: str, *, writing: bool = False) -> Iterator[None]:
    """Let nothing but `penstock.errors` out. `writing` says that an accepted write is at stake."""
    try:
        yield
    except (uniffi.Error, uniffi.InternalError) as error:
        raise translated(error, place, writing=writing) from error


def translated(error: Exception, place: str, *, writing: bool = False) -> PenstockError:
    """The error of ours that says what SlateDB's error means for the caller."""
    text = str(getattr(error, "message", error))
    why = text[:_WHY_CHARACTERS_MAX]
    if isinstance(error, uniffi.Error.Closed):
        return _ended(error.reason, place, why, writing=writing)
    if isinstance(error, uniffi.Error.Invalid):
        return _torn(place, why) if _mentions(why, _TORN) else InvalidInput(f"{place} refused the call", why)
    if isinstance(error, uniffi.Error.Data):
        return _no_store(place) if is_no_store(error) else _of_data(place, text, writing=writing)
    return _of_the_medium(place, text) or (_unknown(place, why) if writing else _away(place, why))


def is_no_store(error: Exception) -> bool:
    """Whether SlateDB found the place, and nothing there yet."""
    return _NO_STORE in str(error)


def _ended(reason: uniffi.CloseReason, place: str, why: str, *, writing: bool) -> PenstockError:
    if reason is uniffi.CloseReason.FENCED:
        return Fenced(f"the writer of {place} was fenced", "a newer writer opened the store", "stop, or open it again")
    if reason is uniffi.CloseReason.CLEAN:
        return Closed(f"the key-value store {place} is closed", "close() was called")
    return _unknown(place, why) if writing else _away(place, why)


def _of_data(place: str, text: str, *, writing: bool) -> PenstockError:
    """Damage, unless it is a service that does not know the place it is to write to."""
    why = text[:_WHY_CHARACTERS_MAX]
    answer = _ANSWER.search(text)
    if answer and answer[3] in _ABSENT:
        return NotFound(f"the bucket of {place} does not exist", why, "create it, or correct the URL")
    if answer and (answer[1], answer[2]) == ("PUT", "404"):
        return _unknown(place, why) if writing else _away(place, why)
    return _torn(place, why)


def _of_the_medium(place: str, text: str) -> PenstockError | None:
    why = text[:_WHY_CHARACTERS_MAX]
    answer = _ANSWER.search(text)
    status, code = (int(answer[2]), answer[3] or "") if answer else (0, "")
    # The last one: names come before it.
    system = int((_SYSTEM.findall(text) or ["0"])[-1])
    if code in _ABSENT:
        return NotFound(f"the bucket of {place} does not exist", why, "create it, or correct the URL")
    if status in (401, 403) or system in _FORBIDDEN:
        return PermissionDenied(f"{place} cannot be used", why, "check the credentials and their permissions")
    if status == 507 or system in _FULL:
        return StorageFull(f"{place} is full", why, "free some space, then open the store again")
    if status == 416 or _SHORT in text:
        return _torn(place, f"a file is shorter than the store knows it to be: {why}")
    return _torn(place, why) if _mentions(why, _TORN) else None


def _mentions(why: str, signs: tuple[str, ...]) -> bool:
    return any(sign in why for sign in signs)


def _no_store(place: str) -> PenstockError:
    return NotFound(f"there is no key-value store at {place}", "it has no manifest", "open it for writing first")


def _torn(place: str, why: str) -> PenstockError:
    return Corrupt(f"the key-value store {place} cannot be read", why, "restore it, or rebuild it from its source")


def _away(place: str, why: str) -> PenstockError:
    return Unavailable(f"the key-value store {place} does not answer", why, "open it again")


def _unknown(place: str, why: str) -> PenstockError:
    return OutcomeUnknown(f"a write to {place} may or may not have been stored", why, "open the store again and read")
