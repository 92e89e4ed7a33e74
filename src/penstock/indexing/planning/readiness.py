"""Which documents of the backlog can be worked on: those whose bucket answers, and whose source of vectors does. Pure.

A source is a model at an address. A bucket that answered for nobody is silent while one of its documents sleeps; so is
a source that did not answer. When its sleeper has slept enough, that alone is tried: the source is on trial, and its
other documents wait for the outcome. So an endpoint that is down costs everybody else one small request now and then.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from penstock.indexing.registry.entries import Pending

__all__ = ["Readiness"]


class Readiness:
    """Counts of the documents that wait, by their bucket and their source. Not for several threads at once."""

    def __init__(self) -> None:
        self._awake: dict[tuple[str, str], _Tally] = {}
        self._silent_buckets: Counter[str] = Counter()
        self._silent_sources: Counter[str] = Counter()
        self._trials: Counter[str] = Counter()

    def count(self, source: str, pending: Pending, size: int, sign: int) -> None:
        """Take in a document that waits, or with -1 one that no longer does."""
        wait, bucket = pending.wait, pending.upload.bucket
        if wait is not None and pending.asleep:
            if wait.whole:
                silent = self._silent_sources if wait.model else self._silent_buckets
                silent[source if wait.model else bucket] += sign
            return
        if wait is not None and wait.model:
            self._trials[source] += sign
        tally = self._awake.setdefault((bucket, source), _Tally())
        tally.documents += sign
        tally.bytes += sign * size
        if not tally.documents:
            del self._awake[bucket, source]

    @property
    def trials(self) -> frozenset[str]:
        """Sources that did not answer, and are to be tried again."""
        return frozenset(source for source, documents in self._trials.items() if documents)

    @property
    def any(self) -> bool:
        """Whether somebody can be worked on."""
        return any(not self._is_silent(bucket, source) for bucket, source in self._awake)

    @property
    def documents(self) -> int:
        return sum(tally.documents for tally in self._open())

    @property
    def bytes(self) -> int:
        return sum(tally.bytes for tally in self._open())

    def of(self, source: str, pending: Pending) -> bool:
        """Whether this one can be worked on."""
        if pending.asleep or self._is_silent(pending.upload.bucket, source):
            return False
        return not self._trials[source] or (pending.wait is not None and pending.wait.model)

    def _is_silent(self, bucket: str, source: str) -> bool:
        return bool(self._silent_buckets[bucket] or self._silent_sources[source])

    def _open(self) -> list[_Tally]:
        """Of those that nothing holds back; a source on trial holds back all but a few."""
        return [
            tally
            for (bucket, source), tally in self._awake.items()
            if not self._is_silent(bucket, source) and not self._trials[source]
        ]


@dataclass(slots=True)
class _Tally:
    documents: int = 0
    bytes: int = 0
