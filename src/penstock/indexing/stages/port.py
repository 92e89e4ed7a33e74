"""The two heavy stages of a round as a port: read, parse and chunk documents; embed batches of chunks.

Everything else of the indexing job is decided on its driver. `LocalStages` runs both in this process; the Spark engine,
in `penstock.pipelines`, runs them on executors. One suite in `tests/contracts` holds both to what is said here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.documents import BatchRequest
from penstock.documents.embedding import Later
from penstock.errors import Closed
from penstock.indexing.stages.readings import DocumentReading, ReadRequest

__all__ = ["EmbeddingReply", "Stages", "given_up"]


def given_up() -> Closed:
    """The error of a cancelled call."""
    return Closed("a stage of a round was cancelled", "the job was stopped", "the next run repeats it")


@dataclass(frozen=True, slots=True)
class EmbeddingReply:
    """What the embedding stage answered: rows of `wire.ANSWER_SCHEMA`, and the requests whose provider stayed away."""

    answered: pa.Table
    away: Mapping[int, Later]
    retries: int

    @classmethod
    def of(cls, answered: pa.Table) -> EmbeddingReply:
        told = answered.filter(answered["chunk_id"].is_null()).select(["request", "reason", "retries", "after_seconds"])
        rows = told.to_pylist()
        away = {row["request"]: Later(row["reason"], row["after_seconds"]) for row in rows if row["reason"] is not None}
        return cls(answered, away, sum(row["retries"] for row in rows))


class Stages(Protocol):
    """Blocking; one call at a time, from any thread. What is asked again is answered alike."""

    @property
    def answers_beside(self) -> bool:
        """Whether two of these, asked from two threads, are answered side by side: neither waits for the other."""
        ...

    def read(self, asked: Sequence[ReadRequest]) -> list[DocumentReading]:
        """What is read of each document, in their order.

        What is wrong with a document or its bucket is an outcome and no error; what is wrong with the engine is raised.
        """
        ...

    def embed(
        self, requests: Mapping[int, BatchRequest], *, brisk: bool = False, trials: frozenset[str] = frozenset()
    ) -> EmbeddingReply:
        """The answers to the requests of a round, which are told apart by their numbers.

        `brisk` when others wait for the answers of this one; `trials` are sources that did not answer before, and are
        asked for a word first.
        """
        ...

    def cancel(self) -> None:
        """Give up the call that is under way, from any thread: it raises `Closed`. Nothing happens when there is none."""
        ...

    def close(self) -> None:
        """Let go of what serves these stages alone; none of their calls is under way."""
        ...
