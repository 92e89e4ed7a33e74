"""What to do after each answer of a store to a conditional write: the pure core of the register.

All writes of one attempt carry the same bytes on the same base version, so at most one of them can
ever land. That makes a lost answer harmless: once the base has moved on, a write that has not landed
never will, and reading the object again tells which of the two it is.

```
            write ──landed──▶ DONE
              │ conflict, nothing lost before ──▶ REBASE   (dead: read, apply the changes anew)
              │ not sent ──▶ REPEAT, or REBASE when nothing is lost and the group may change
              ▼ lost, or conflict after a lost one
            re-read ──same version──▶ REPEAT               (it may still land: same bytes, same base)
              │ moved, the body shows it ──▶ CONFIRM ──a durable read shows it──▶ DONE
              │ moved, the body denies it ──▶ REBASE
              ▼ moved, the body cannot tell
            UNPROVED
```
A body that can be read proves that the write landed, not that it will last: the lost answer may have been
that of the disk, which could not make it durable. So the proof is read once more through `get_durable`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

__all__ = ["Attempt", "Move", "Sight", "WriteReply", "agreed"]


class WriteReply(Enum):
    """What the store said to one conditional write."""

    LANDED = auto()
    CONFLICT = auto()  # the base is no longer current; this call wrote nothing
    UNSENT = auto()  # nothing was written, and nothing is known of the base
    LOST = auto()  # sent, and neither success nor failure came back


class Sight(Enum):
    """What reading the object again showed."""

    SAME = auto()  # still the base version
    SHOWN = auto()  # moved on, and the change is in it
    DENIED = auto()  # moved on, and the change is not in it
    MUTE = auto()  # moved on, and the body can no longer tell


class Move(Enum):
    """What to do next."""

    DONE = auto()
    REREAD = auto()
    CONFIRM = auto()  # it has landed: make sure that it lasts
    REPEAT = auto()  # the same bytes on the same base
    REBASE = auto()  # nothing of this attempt will ever land: begin a new one
    UNPROVED = auto()  # whether it landed will never be known


@dataclass(frozen=True, slots=True)
class Attempt:
    """One set of bytes for one base version. `outstanding`: a write of it may have landed, or still may."""

    outstanding: bool = False

    def after_write(self, answer: WriteReply) -> tuple[Attempt, Move]:
        if answer is WriteReply.LANDED:
            return Attempt(), Move.DONE
        if answer is WriteReply.LOST:
            return Attempt(outstanding=True), Move.REREAD
        if not self.outstanding:
            return self, Move.REBASE
        # A conflict may be with our own lost write, so it proves nothing by itself.
        return self, Move.REREAD if answer is WriteReply.CONFLICT else Move.REPEAT

    def after_read(self, sight: Sight) -> tuple[Attempt, Move]:
        if sight is Sight.SAME:
            return self, Move.REPEAT
        if sight is Sight.MUTE:
            return self, Move.UNPROVED
        if sight is Sight.SHOWN:
            return self, Move.CONFIRM
        return Attempt(), Move.REBASE

    def after_confirmation(self, sight: Sight) -> tuple[Attempt, Move]:
        """After a read of what is durable. It can no longer be the base version, which was seen to be gone."""
        return (Attempt(), Move.DONE) if sight is Sight.SHOWN else self.after_read(sight)


def agreed(verdicts: Iterable[bool | None]) -> Sight:
    """One sight from the answers of all changes of an attempt, which landed together or not at all.

    A change that cannot tell follows those that can. A contradiction means that some proof answered
    for somebody else's write, and then none of them is believed.
    """
    told = {verdict for verdict in verdicts if verdict is not None}
    if len(told) != 1:
        return Sight.MUTE
    return Sight.SHOWN if told.pop() else Sight.DENIED
