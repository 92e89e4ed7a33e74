"""Who may write now: two bounds, and a fair line before them.

Pure. A writer that finds room and nobody before it takes the room at once. Any other gets a ticket: room is
given to the line in the order of arrival and claimed in that order, and nobody writes before those who came
earlier, so a large write is never starved by small ones and a caller that lets others run keeps its place. A
ticket that is granted holds its room until it is claimed or withdrawn, which makes a cancelled caller harmless.
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
        self._granted: OrderedDict[Ticket, None] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Writers for whom there is no room yet."""
        return len(self._line)

    def take(self, size_bytes: int, now_or_never: bool = False) -> bool:
        """Take room if there is some and nobody came earlier.

        Whoever cannot wait passes those who have their room and only wait to be woken, never those who have none.
        """
        if self._line or (self._granted and not now_or_never) or not self.fits(size_bytes):
            return False
        self.bytes += size_bytes
        self.writes += 1
        return True

    def leave(self, size_bytes: int, writes: int = 1) -> None:
        self.bytes -= size_bytes
        self.writes -= writes

    def queue(self, size_bytes: int) -> Ticket:
        """A place behind everyone who came earlier, granted at once if room is not what it lacks."""
        ticket = Ticket(size_bytes)
        if not self._line and self.fits(size_bytes):
            self._grant(ticket)
        else:
            self._line[ticket] = None
        return ticket

    def grant(self) -> list[Ticket]:
        """The tickets at the head of the line for which there is room now; they hold it from here on."""
        granted = []
        while self._line and self.fits((ticket := next(iter(self._line))).size_bytes):
            del self._line[ticket]
            self._grant(ticket)
            granted.append(ticket)
        return granted

    def is_next(self, ticket: Ticket) -> bool:
        """Whether nobody who came earlier has still to write."""
        return next(iter(self._granted), None) is ticket

    def claim(self, ticket: Ticket) -> None:
        """A granted ticket's room becomes its write's."""
        assert ticket.granted
        ticket.granted = False
        del self._granted[ticket]

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

    def _grant(self, ticket: Ticket) -> None:
        ticket.granted = True
        self._granted[ticket] = None
        self.bytes += ticket.size_bytes
        self.writes += 1

    def fits(self, size_bytes: int) -> bool:
        return self.bytes + size_bytes <= self.max_bytes and self.writes < self.max_writes
