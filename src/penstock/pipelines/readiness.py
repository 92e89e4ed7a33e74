"""Which documents of the backlog can be worked on: those whose bucket answers, and whose model does. Pure.

A bucket that answered for nobody is silent while one of its documents sleeps; so is a model whose endpoint did not
answer. When a model's sleeper has slept enough, it alone is tried: the model is on trial, and its other documents wait
for the outcome. So an endpoint that is down costs everybody else one small request now and then.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from penstock.pipelines.registry import Pending

__all__ = ["Readiness"]


class Readiness:
    """Counts of the documents that wait, by their bucket and their model. Not for several threads at once."""

    def __init__(self) -> None:
        self._awake: dict[tuple[str, str], _Tally] = {}
        self._silent_buckets: Counter[str] = Counter()
        self._silent_models: Counter[str] = Counter()
        self._trials: Counter[str] = Counter()

    def count(self, model: str, pending: Pending, size: int, sign: int) -> None:
        """Take in a document that waits, or with -1 one that no longer does."""
        wait, bucket = pending.wait, pending.upload.bucket
        if wait is not None and pending.asleep:
            if wait.whole:
                silent = self._silent_models if wait.model else self._silent_buckets
                silent[model if wait.model else bucket] += sign
            return
        if wait is not None and wait.model:
            self._trials[model] += sign
        tally = self._awake.setdefault((bucket, model), _Tally())
        tally.documents += sign
        tally.bytes += sign * size
        if not tally.documents:
            del self._awake[bucket, model]

    @property
    def trials(self) -> frozenset[str]:
        """Models that did not answer, and are to be tried again."""
        return frozenset(model for model, documents in self._trials.items() if documents)

    @property
    def any(self) -> bool:
        """Whether somebody can be worked on."""
        return any(not self._is_silent(bucket, model) for bucket, model in self._awake)

    @property
    def documents(self) -> int:
        return sum(tally.documents for tally in self._open())

    @property
    def bytes(self) -> int:
        return sum(tally.bytes for tally in self._open())

    def of(self, model: str, pending: Pending) -> bool:
        """Whether this one can be worked on."""
        if pending.asleep or self._is_silent(pending.upload.bucket, model):
            return False
        return not self._trials[model] or (pending.wait is not None and pending.wait.model)

    def _is_silent(self, bucket: str, model: str) -> bool:
        return bool(self._silent_buckets[bucket] or self._silent_models[model])

    def _open(self) -> list[_Tally]:
        """Of those that nothing holds back; a model on trial holds back all but a few."""
        return [
            tally
            for (bucket, model), tally in self._awake.items()
            if not self._is_silent(bucket, model) and not self._trials[model]
        ]


@dataclass(slots=True)
class _Tally:
    documents: int = 0
    bytes: int = 0
