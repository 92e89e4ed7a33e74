"""The errors of Penstock: every failure says what happened, why, and what to do about it.

```
PenstockError
├── InvalidInput (ValueError)       the caller's input cannot be used as it is
├── Unsupported                     the input is fine, but this store, format or platform cannot serve it
├── NotFound (LookupError)          the named thing is not there
├── PermissionDenied                the store knows who we are and says no
├── Conflict                        a condition on a write did not hold: somebody else was first
├── Fenced                          a newer writer or consumer took over; this one must stop
├── OutcomeUnknown                  a write was sent and its answer lost: neither success nor failure
├── Unavailable                     the store did not answer, or asked to come back later
│   └── DeadlineExceeded (TimeoutError)   retries went on until the caller's time was up
├── AtCapacity                      a configured bound is reached; the rejected input is handed back
├── BudgetSpent                     a run has used what it may spend; the rest waits for the next one
├── StorageFull                     the disk or quota has no room; what was acknowledged is safe
├── Corrupt                         bytes that were read are not the bytes that were written
└── Closed                          the object was shut down before the call
```

`OutcomeUnknown` is deliberately not a kind of `Unavailable`: code that retries on `Unavailable` must
never retry a write that may have landed. Catch it, read again, then decide.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "AtCapacity",
    "BudgetSpent",
    "Closed",
    "Conflict",
    "Corrupt",
    "DeadlineExceeded",
    "Fenced",
    "InvalidInput",
    "NotFound",
    "OutcomeUnknown",
    "PenstockError",
    "PermissionDenied",
    "StorageFull",
    "Unavailable",
    "Unsupported",
]


class PenstockError(Exception):
    """What failed, why, and the remedy; the three are kept apart so that a log or a CLI can lay them out."""

    # What helps against this kind of failure, for those who raise it and know nothing better.
    usual_remedy: ClassVar[str] = "look at the cause of this error"

    def __init__(self, what: str, why: str = "", remedy: str = "") -> None:
        # All three go to Exception, so that the error survives pickling between Spark's processes.
        super().__init__(what, why, remedy)
        self.what = what
        self.why = why
        self.remedy = remedy or self.usual_remedy

    def __str__(self) -> str:
        """In one line. The usual remedy goes without saying there: errors quote each other, and it would be repeated."""
        text = f"{self.what}: {self.why}" if self.why else self.what
        return text if self.remedy == self.usual_remedy else f"{text} ({self.remedy})"


class InvalidInput(PenstockError, ValueError):
    """The input cannot be used: nothing was done."""

    usual_remedy = "correct the input and try again"


class Unsupported(PenstockError):
    """The input is well formed, but what it asks for is not offered here: nothing was done."""

    usual_remedy = "use a release, a store or a platform that offers it"


class NotFound(PenstockError, LookupError):
    """The named object, key or entry does not exist."""

    usual_remedy = "check the name, and where it was looked for"


class PermissionDenied(PenstockError):
    """Credentials are missing, wrong, or not allowed to do this."""

    usual_remedy = "check the credentials, and what they may do"


class Conflict(PenstockError):
    """A conditional write did not apply because its condition no longer held: nothing was written."""

    usual_remedy = "read again what is there now, and decide anew"


class Fenced(PenstockError):
    """A newer holder of the fence exists. This one has written nothing since and must not go on."""

    usual_remedy = "stop: the newer holder goes on"


class OutcomeUnknown(PenstockError):
    """A write was sent, and whether it landed is not known. Read again before deciding."""

    usual_remedy = "read again what is there now, then decide"


class Unavailable(PenstockError):
    """The other side did not answer or asked for a pause: nothing was written, and a retry is safe."""

    usual_remedy = "check that the other side is up, and try again"


class DeadlineExceeded(Unavailable, TimeoutError):
    """Retrying went on until the deadline: nothing was written by this call."""


class AtCapacity(PenstockError):
    """A bound would be passed. `rejected` is the caller's input, given back untouched."""

    usual_remedy = "let what is under way finish, or raise the bound"

    def __init__(self, what: str, why: str = "", remedy: str = "", rejected: Any = None) -> None:
        super().__init__(what, why, remedy)
        self.rejected = rejected

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.what, self.why, self.remedy, self.rejected))


class BudgetSpent(PenstockError):
    """A run has used what it was allowed to spend: it ended in good order, and what is left waits for the next one."""

    usual_remedy = "run it again, or raise the budget"


class StorageFull(PenstockError):
    """No room is left to write. Reading, draining and deleting still work."""

    usual_remedy = "free some room, and try again"


class Corrupt(PenstockError):
    """A checksum, length or structure does not hold. The bytes are left where they are."""

    usual_remedy = "restore the bytes from a good copy"


class Closed(PenstockError):
    """The store, producer, consumer or coordinator was closed before this call."""

    usual_remedy = "make or open a new one"
