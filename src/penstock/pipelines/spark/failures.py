"""What Spark raises, as one of the project's own errors."""

from __future__ import annotations

from typing import Final

from penstock import errors
from penstock.errors import PenstockError

__all__ = ["failure_of"]

_ERRORS: Final = "penstock.errors."


def failure_of(error: Exception, what: str) -> PenstockError:
    """A task's own error, which is the last line of what it printed that names one; else one that says what ended."""
    lines = [line.strip() for line in str(error).splitlines()]
    named = [line.removeprefix(_ERRORS) for line in lines if line.startswith(_ERRORS)]
    kind, _, why = named[-1].partition(": ") if named else ("", "", next(iter(lines), ""))
    made: type[PenstockError] = getattr(errors, kind, PenstockError)
    return made(what, why, "nothing is lost: run it again once the cause is gone")
