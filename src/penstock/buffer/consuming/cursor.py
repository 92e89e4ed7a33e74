"""Where one consumer stands: what it has handed out, and through where everything is done. Pure.

```
 dequeued        done through          handed out            queue's end
    │ acknowledged, still │ handed out, not       │ not seen yet      │
    │ in the manifest     │ acknowledged          │                   │
────┴─────────────────────┴───────────────────────┴───────────────────┴──▶ sequence
```
Planning an acknowledgement changes nothing. The consumer writes what must be written, and only then
tells the cursor, so a write that fails leaves everything as it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import takewhile
from operator import index

from penstock.buffer.format.manifest import Descriptor
from penstock.errors import InvalidInput

__all__ = ["Cursor", "whole_number"]


def whole_number(value: object, what: str, noun: str = "sequence") -> int:
    """Refuse a fraction, a text or a true: taken for a sequence, each would take off the wrong batches."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        why = f"{value!r} is of type {type(value).__name__}, and a {noun} is a whole number"
        raise InvalidInput(what, why, "give it as an int")
    return index(value)


class Cursor:
    """Starts behind `last_acked`, or, when that is None, before whatever the queue holds first."""

    def __init__(self, last_acked: int | None = None) -> None:
        self._handed_out = last_acked
        self._last_acked = last_acked
        # Handed out and neither acknowledged nor set aside, in order.
        self._pending: deque[int] = deque()
        self._dequeued = last_acked
        # The last sequence that was never this consumer's to acknowledge.
        self._before = last_acked
        # Batches acknowledged since the last dequeue.
        self.unwritten_acks = 0

    @property
    def handed_out(self) -> int | None:
        """The last sequence that was handed out; reading ahead goes on behind it."""
        return self._handed_out

    @property
    def last_acked(self) -> int | None:
        return self._last_acked

    @property
    def done_through(self) -> int | None:
        """Everything up to here is acknowledged or set aside."""
        return self._pending[0] - 1 if self._pending else self._handed_out

    @property
    def to_dequeue(self) -> int | None:
        """Through where the manifest can be relieved; None when it holds nothing that is done."""
        done = self.done_through
        return done if done is not None and (self._dequeued is None or done > self._dequeued) else None

    def hand_out(self, descriptors: Sequence[Descriptor]) -> None:
        for descriptor in descriptors:
            self._pass(descriptor.sequence)
            self._pending.append(descriptor.sequence)

    def plan_ack(self, sequence: int) -> int:
        """Check that this acknowledgement is the next one; through where all is done once it counts."""
        if not self._pending:
            why = "nothing handed out is unacknowledged"
            raise InvalidInput(f"cannot acknowledge {sequence}", why, "ask for the next batch first")
        if sequence != self._pending[0]:
            raise InvalidInput(
                f"cannot acknowledge {sequence}",
                f"the next one is {self._pending[0]}",
                "acknowledge in order, or use ack_through for a whole run",
            )
        return self._through(sequence)

    def plan_ack_through(self, sequence: int) -> int:
        """Check that this run is new and was handed out; through where all is done once it counts."""
        what, remedy = f"cannot acknowledge through {sequence}", "give the watermark of what was handed out"
        if self._handed_out is None:
            raise InvalidInput(what, "nothing was handed out", remedy)
        if self._last_acked is not None and sequence <= self._last_acked:
            raise InvalidInput(what, f"{self._last_acked} is already acknowledged", remedy)
        if self._before is not None and sequence <= self._before:
            raise InvalidInput(what, f"the first one handed out is {self._before + 1}", remedy)
        if sequence > self._handed_out:
            raise InvalidInput(what, f"the last one handed out is {self._handed_out}", remedy)
        return self._through(sequence)

    def check_pending(self, sequence: int) -> None:
        """Refuse what this cursor has not handed out, or has done with: the batches before it are not its to skip."""
        if sequence not in self._pending:
            why = "this consumer did not hand it out, or has acknowledged or set it aside"
            raise InvalidInput(f"batch {sequence} cannot be set aside", why, "set aside what its own reads returned")

    def plan_set_aside(self, sequence: int) -> int | None:
        """Through where all is done once this one is set aside; None while something before it is not."""
        return None if self._pending and self._pending[0] < sequence else self._through(sequence)

    def count_through(self, sequence: int) -> int:
        """How many batches an acknowledgement through here covers."""
        return sum(1 for _ in takewhile(lambda pending: pending <= sequence, self._pending))

    def acked(self, sequence: int) -> int:
        """Count the acknowledgement; how many batches it covers."""
        count = 0
        while self._pending and self._pending[0] <= sequence:
            self._pending.popleft()
            count += 1
        self._last_acked = sequence
        self.unwritten_acks += count
        return count

    def set_aside(self, sequence: int) -> None:
        """Stop waiting for a sequence that was recorded as a dead letter."""
        if sequence in self._pending:
            self._pending.remove(sequence)
        elif self._handed_out is None or sequence > self._handed_out:
            self._pass(sequence)

    def written(self, through: int) -> None:
        """Everything through here has left the manifest."""
        self._dequeued = through
        self.unwritten_acks = 0

    def _pass(self, sequence: int) -> None:
        if self._dequeued is None:
            # The first one seen: whatever was before it had left the queue already.
            self._dequeued = self._before = sequence - 1
        self._handed_out = sequence

    def _through(self, sequence: int) -> int:
        later = next((pending for pending in self._pending if pending > sequence), None)
        if later is not None:
            return later - 1
        return sequence if self._handed_out is None else max(sequence, self._handed_out)
