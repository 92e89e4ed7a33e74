"""Which chunks of a round are sent to their models. Pure.

A chunk whose vector is known is not sent, and of chunks with one text only the first is, in all indexes of a tenant that
ask the same model: the others borrow its answer. Whose documents can be paid for is decided here too, document by
document in the order of the round, so that a document is sent whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from penstock.indexing.planning.backlog import Share
from penstock.indexing.rounds.answers import Answers, Unanswered, chunk_name
from penstock.indexing.stages.readings import DocumentReading
from penstock.vector import CollectionName

__all__ = ["Lender", "RoundChoice", "borrowed_rows", "choose", "left_without"]


class Lender(NamedTuple):
    """A chunk of the round that is sent, and whose answer others with its text take."""

    name: CollectionName
    chunk: str


@dataclass(slots=True)
class RoundChoice:
    """Documents that cannot be paid for, and chunks that take the answer of another one."""

    held: set[tuple[CollectionName, str]] = field(default_factory=set)
    borrowed: dict[CollectionName, dict[str, Lender]] = field(default_factory=dict)

    def unsent(self, name: CollectionName, known: Set[str]) -> frozenset[str]:
        """The chunks of a collection that are not sent."""
        return frozenset(known | self.borrowed.get(name, {}).keys())


def choose(
    read: Iterable[tuple[Share, DocumentReading]],
    known: Mapping[CollectionName, Set[str]],
    shared_by: Callable[[CollectionName], Hashable | None],
    admits: Callable[[CollectionName, int], bool],
) -> RoundChoice:
    """`shared_by` names those who may use each other's vectors, None for one that is not worth asking; `admits` is
    asked for every document, with the tokens that it would take.
    """
    choice = RoundChoice()
    lenders: dict[tuple[Hashable, str], Lender] = {}
    for share, reading in read:
        name, document, group = share.name, share.pending.doc_id, shared_by(share.name)
        own: dict[tuple[Hashable, str], Lender] = {}
        borrowed: dict[str, Lender] = {}
        tokens = 0
        for chunk in reading.chunks:
            chunk_id = chunk_name(document, chunk)
            if chunk_id in known.get(name, ()):
                continue
            text = (group, chunk.text)
            lender = None if group is None else lenders.get(text) or own.get(text)
            if lender is not None:
                borrowed[chunk_id] = lender
                continue
            own[text] = Lender(name, chunk_id)
            tokens += chunk.tokens
        if not admits(name, tokens):
            choice.held.add((name, document))
            continue
        if group is not None:
            lenders |= own
        choice.borrowed.setdefault(name, {}).update(borrowed)
    return choice


def borrowed_rows(lent: Mapping[str, Lender], answers: Mapping[CollectionName, Answers]) -> pa.Table | None:
    """`chunk_id`, `vector` and `reason` of chunks that borrow; None when none does. Lenders without an answer lend none."""
    by_lender: dict[CollectionName, list[tuple[str, str]]] = {}
    for chunk, lender in lent.items():
        if lender.chunk in answers[lender.name]:
            by_lender.setdefault(lender.name, []).append((chunk, lender.chunk))
    tables = [
        pa.table(
            {
                "chunk_id": pa.array([chunk for chunk, _ in pairs], pa.string()),
                "vector": answers[name].vectors([lender for _, lender in pairs]),
                "reason": pa.array([answers[name].reason(lender) for _, lender in pairs], pa.string()),
            }
        )
        for name, pairs in by_lender.items()
    ]
    return pa.concat_tables(tables) if tables else None


def left_without(
    read: Iterable[tuple[Share, DocumentReading]],
    choice: RoundChoice,
    answers: Mapping[CollectionName, Answers],
    unanswered: Sequence[Unanswered],
) -> list[Unanswered]:
    """Documents that borrow of a chunk whose model did not answer: they wait as its document does."""
    away = {one.name: one.answer for one in unanswered}
    found: dict[tuple[CollectionName, CollectionName], set[str]] = {}
    for share, reading in read if away else ():
        lent = choice.borrowed.get(share.name, {})
        for chunk in reading.chunks if lent else ():
            lender = lent.get(chunk_name(share.pending.doc_id, chunk))
            if lender is not None and lender.name in away and lender.chunk not in answers[lender.name]:
                found.setdefault((share.name, lender.name), set()).add(share.pending.doc_id)
    return [Unanswered(name, away[lender], frozenset(documents)) for (name, lender), documents in found.items()]
