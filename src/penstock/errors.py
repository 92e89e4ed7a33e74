"""The errors of Penstock: every failure says what happened, why, and what to do about it.

```
PenstockError
├── InvalidInput (ValueError)       the caller's input cannot be used as it is
├── Unsupported                     the input is fine, but this store, format or platform cannot serve it
├── NotFound (LookupError)          the named thing does not exist
├── PermissionDenied                credentials are missing, wrong or not sufficient
├── Conflict                        the condition of a write did not hold: another writer was first
├── Fenced                          a newer writer or consumer took over; this one must stop
├── OutcomeUnknown                  a write was sent and its answer lost: neither success nor failure
├── Unavailable                     the service did not answer, or asked for a pause
│   └── DeadlineExceeded (TimeoutError)   retries did not succeed before the deadline
├── AtCapacity                      a configured limit is reached; the rejected input is returned
├── BudgetSpent                     a run has spent its budget; the rest waits for the next run
├── StorageFull                     the disk or quota is full; acknowledged data is safe
├── Corrupt                         stored bytes are not the bytes that were written
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
    """The base class of all errors: `what` failed, `why`, and the `remedy`, kept apart for logs and the terminal."""

    # The remedy for this kind of failure, unless the raiser gives a better one.
    usual_remedy: ClassVar[str] = "see the cause of this error"

    def __init__(self, what: str, why: str = "", remedy: str = "") -> None:
        # All three go to Exception, so that the error survives pickling between Spark's processes.
        super().__init__(what, why, remedy)
        self.what = what
        self.why = why
        self.remedy = remedy or self.usual_remedy

    def __str__(self) -> str:
        """One line. It leaves out the usual remedy, which would be repeated when errors quote each other."""
        text = f"{self.what}: {self.why}" if self.why else self.what
        return text if self.remedy == self.usual_remedy else f"{text} ({self.remedy})"


class InvalidInput(PenstockError, ValueError):
    """The input cannot be used: nothing was done."""

    usual_remedy = "correct the input and try again"


class Unsupported(PenstockError):
    """The input is valid, but asks for something that is not supported here: nothing was done."""

    usual_remedy = "use a release, a store or a platform that supports it"


class NotFound(PenstockError, LookupError):
    """The named object, key or entry does not exist."""

    usual_remedy = "check the name and the place"


class PermissionDenied(PenstockError):
    """Credentials are missing, wrong, or not allowed to do this."""

    usual_remedy = "check the credentials and their permissions"


class Conflict(PenstockError):
    """A conditional write failed because its condition no longer held: nothing was written."""

    usual_remedy = "read the current state, then decide again"


class Fenced(PenstockError):
    """A newer holder of the fence exists. This one has written nothing since, and must stop."""

    usual_remedy = "stop: the newer holder continues"


class OutcomeUnknown(PenstockError):
    """A write was sent, and it is not known whether it was stored. Read again before deciding."""

    usual_remedy = "read the current state, then decide"


class Unavailable(PenstockError):
    """The service did not answer, or asked for a pause: nothing was written, and a retry is safe."""

    usual_remedy = "check that the service is up, and try again"


class DeadlineExceeded(Unavailable, TimeoutError):
    """Retries did not succeed before the deadline: nothing was written by this call."""


class AtCapacity(PenstockError):
    """A limit would be exceeded. `rejected` is the caller's input, returned unchanged."""

    usual_remedy = "let work in progress finish, or raise the limit"

    def __init__(self, what: str, why: str = "", remedy: str = "", rejected: Any = None) -> None:
        super().__init__(what, why, remedy)
        self.rejected = rejected

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.what, self.why, self.remedy, self.rejected))


class BudgetSpent(PenstockError):
    """A run has spent its budget: it ended cleanly, and the rest waits for the next run."""

    usual_remedy = "run it again, or raise the budget"


class StorageFull(PenstockError):
    """No space is left to write. Reading, draining and deleting still work."""

    usual_remedy = "free some space, and try again"


class Corrupt(PenstockError):
    """A checksum, length or structure is wrong. The bytes are not changed."""

    usual_remedy = "restore the bytes from a good copy"


class Closed(PenstockError):
    """The store, producer, consumer or coordinator was closed before this call."""

    usual_remedy = "make or open a new one"
