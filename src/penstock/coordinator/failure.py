"""What a failed flush means to those whom it concerns, as errors. Pure.

The same cause reaches two kinds of caller. A new write is refused: nothing was taken, and the cause's own
kind is the truth. A caller who waits for an accepted write must not be told `Unavailable`, which promises
that nothing was written and invites to write again: its write is kept and may yet land, so its outcome is
unknown. Each caller gets an instance of its own, because a raised error carries its caller's traceback.
"""

from __future__ import annotations

from penstock.coordinator.protocols import Epochs
from penstock.errors import Closed, DeadlineExceeded, OutcomeUnknown, PenstockError, Unavailable

__all__ = ["ends_program", "is_transient", "refusal", "settled_as", "shut_down", "unsettled", "words"]

_REMEDY = "mend the cause, then call retry(); or restart and read on from the stored position"


def is_transient(error: BaseException) -> bool:
    """Whether the same flush may succeed when it is simply made again."""
    return isinstance(error, (Unavailable, OutcomeUnknown))


def ends_program(error: BaseException) -> bool:
    """Whether an error is meant for the whole program, and goes on to it once everyone has been told."""
    return isinstance(error, (KeyboardInterrupt, SystemExit))


def settled_as(error: BaseException, epochs: Epochs, deadline_seconds: float) -> PenstockError:
    """The failure a coordinator comes to rest in, from the last error of a flush."""
    what = f"the flush of epochs {epochs} failed in attempt {epochs.attempt}"
    if isinstance(error, Unavailable):
        why = f"the store was still not available after {deadline_seconds:g} s of retries: {words(error)}"
        return _caused(DeadlineExceeded(what, why, _REMEDY), error)
    if isinstance(error, PenstockError):
        return _caused(_alike(error, what, words(error)), error)
    return _caused(PenstockError(what, f"{type(error).__name__}: {words(error)}", _REMEDY), error)


def refusal(cause: PenstockError) -> PenstockError:
    """For a write that was not taken."""
    return _caused(_alike(cause, "the write was not accepted, since an earlier flush failed", words(cause)), cause)


def unsettled(cause: PenstockError) -> PenstockError:
    """For a caller who waits for a write that was taken."""
    what = "the write was taken and is not known to be durable"
    if isinstance(cause, (Unavailable, Closed)):
        return _caused(OutcomeUnknown(what, words(cause), _REMEDY), cause)
    return _caused(_alike(cause, what, words(cause)), cause)


def shut_down() -> Closed:
    return Closed(
        "the write was not accepted",
        "the coordinator is shut down",
        "open a new one, and continue from the stored position",
    )


def words(error: BaseException) -> str:
    """What an error says. One that cannot even be printed must not keep its news from those who wait."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - any fault of a store's own error class
        return f"a {type(error).__name__} that cannot be printed"


def _alike(error: PenstockError, what: str, why: str) -> PenstockError:
    try:
        return type(error)(what, why, _REMEDY)
    except Exception:  # noqa: BLE001 - a subclass may be made in another way, and its waiters are told all the same
        return PenstockError(what, why, _REMEDY)


def _caused(error: PenstockError, cause: BaseException) -> PenstockError:
    error.__cause__ = cause
    return error
