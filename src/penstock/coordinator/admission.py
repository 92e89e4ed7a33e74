"""Who may write now: two bounds, and a fair line before them.

Pure. A writer that finds room takes it at once. One that does not stands in line; room is given to the line
in the order of arrival, and nobody takes any past those who stand there, so a large write is never starved
by small ones. A ticket that is granted holds its room until it is claimed or withdrawn, which is what makes
a cancelled caller harmless.
"""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["Room", "Ticket"]


class Ticket:
    """One writer's place in line."""

    __slots__ = ("granted", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.granted = False


class Room:
    """What is accepted and not yet durable, with what is promised to granted tickets."""

    def __init__(self, max_bytes: int, max_writes: int) -> None:
        self.max_bytes = max_bytes
        self.max_writes = max_writes
        self.bytes = 0
        self.writes = 0
        # Ordered, because a writer whose patience ends leaves from the middle.
        self._line: OrderedDict[Ticket, None] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Writers that stand in line."""
        return len(self._line)

    def take(self, size_bytes: int) -> bool:
        """Take room if there is some and nobody stands in line.

        Granted tickets are not waited for: they have their room, and waiting would make every writer that comes
        after a full buffer stand in line behind the one before it, for ever.
        """
        if self._line or not self._fits(size_bytes):
            return False
        self.bytes += size_bytes
        self.writes += 1
        return True

    def leave(self, size_bytes: int, writes: int = 1) -> None:
        self.bytes -= size_bytes
        self.writes -= writes

    def queue(self, size_bytes: int) -> Ticket:
        ticket = Ticket(size_bytes)
        self._line[ticket] = None
        return ticket

    def grant(self) -> list[Ticket]:
        """The tickets at the head of the line for which there is room now; they hold it from here on."""
        granted = []
        while self._line and self._fits((ticket := next(iter(self._line))).size_bytes):
            del self._line[ticket]
            ticket.granted = True
            self.bytes += ticket.size_bytes
            self.writes += 1
            granted.append(ticket)
        return granted

    def claim(self, ticket: Ticket) -> None:
        """A granted ticket's room becomes its write's."""
        assert ticket.granted
        ticket.granted = False

    def withdraw(self, ticket: Ticket) -> None:
        """Give up a place, and the room if it was granted."""
        if ticket.granted:
            self.claim(ticket)
            self.leave(ticket.size_bytes)
        else:
            self._line.pop(ticket, None)

    def turn_away(self) -> list[Ticket]:
        """Empty the line."""
        turned = list(self._line)
        self._line.clear()
        return turned

    def _fits(self, size_bytes: int) -> bool:
        return self.bytes + size_bytes <= self.max_bytes and self.writes < self.max_writes
