"""Documents that a round does not wait for: they used up their share of its time, and are finished apart. Pure.

A document is parsed with `round_cpu_seconds` while it shares a round with others. One that needs more is put aside,
which is written down before the round goes on without it, so that a repetition goes on without it too. It is parsed
with all that a document may take, beside the rounds of others, and has a round of its own: when nobody else waits, or
when many have overtaken it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.indexing.registry.entries import DocumentEntry, Pending
from penstock.indexing.stages.readings import DocumentReading, ReadOutcome
from penstock.vector import CollectionName

if TYPE_CHECKING:
    from penstock.indexing.planning.backlog import Share

__all__ = ["first_apart", "in_turn", "is_apart", "put_aside"]

# Turns of others that pass before a document that was put aside has its own: a stream without a pause starves nobody.
OVERTAKEN_MAX: Final = 1_000

_Waiting = tuple[CollectionName, DocumentEntry]


def is_apart(pending: Pending) -> bool:
    """Whether a document is to be parsed in a round of its own. Once its text is known it is read like any other."""
    return pending.apart and pending.text_bytes is None


def first_apart(waiting: Iterable[_Waiting]) -> _Waiting | None:
    """The document that has the next round to itself; `waiting` is in the order of turns."""
    return next((one for one in waiting if is_apart(_pending(one))), None)


def in_turn(waiting: Iterable[_Waiting]) -> list[_Waiting]:
    """Those that share the next round; `waiting` is in the order of turns. A document apart is alone in its round."""
    others: list[_Waiting] = []
    first: _Waiting | None = None
    for one in waiting:
        if not is_apart(_pending(one)):
            others.append(one)
        elif first is None:
            first = one
    if first is None:
        return others
    overtaken = not others or _pending(others[0]).turn - _pending(first).turn > OVERTAKEN_MAX
    return [first] if overtaken else others


def put_aside(shares: Sequence[Share], readings: Sequence[DocumentReading], turn: int) -> list[_Waiting]:
    """The entries of documents that used up their share of the round; they wait from `turn` on."""
    found = [share for share, reading in zip(shares, readings, strict=True) if reading.outcome is ReadOutcome.APART]
    return [
        (
            share.name,
            msgspec.structs.replace(
                share.entry, pending=msgspec.structs.replace(share.pending, apart=True, turn=turn + place)
            ),
        )
        for place, share in enumerate(found)
    ]


def _pending(one: _Waiting) -> Pending:
    pending = one[1].pending
    assert pending is not None
    return pending
