"""Two ways in which a call on a torn disk never returns."""

from __future__ import annotations

__all__ = ["Hung", "PowerCut"]


class PowerCut(BaseException):
    """The machine lost its power during a call. No `Exception`: no handler of a dead machine runs."""


class Hung(BaseException):
    """A call that never returns, as far as its caller lives: `inline` waits for ever where it meets one."""
