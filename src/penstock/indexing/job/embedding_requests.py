"""From the batches of a round to their answers, however long the provider takes.

The rate limit is one for all tasks and all rounds: the account of it is kept here, and each task gets its part. Where a
store has one model, nobody is held back by waiting for it: what it has answered is kept while the rest is sent again,
under the same ids and with the same content. Where there are several, the round goes on without the documents that were
not answered for.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

import pyarrow as pa

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.documents import BatchRequest
from penstock.documents.embedding import Allowance, RateLimit
from penstock.indexing.job.patience import Patience
from penstock.indexing.job.summary import JobProgress
from penstock.indexing.rounds.answers import NO_ANSWERS, Answers, Unanswered, answers_by_collection
from penstock.indexing.rounds.rounds import Batched
from penstock.indexing.stages.port import Stages
from penstock.vector import CollectionName

__all__ = ["EmbeddingRequests"]


class EmbeddingRequests:
    """Called by one thread at a time."""

    def __init__(
        self,
        stages: Stages,
        rate: RateLimit,
        patience: Patience,
        job_progress: JobProgress,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._stages, self._patience, self._job_progress = stages, patience, job_progress
        self._allowance = Allowance(rate, clock.monotonic())
        self._clock = clock

    def answers(self, batched: Mapping[CollectionName, Batched]) -> dict[CollectionName, Answers]:
        """The answers to all requests of a round, by collection."""
        requests, places = _numbered(batched)
        return answers_by_collection(self._asked(requests), places)

    def tried(
        self, batched: Mapping[CollectionName, Batched], trials: frozenset[str]
    ) -> tuple[dict[CollectionName, Answers], list[Unanswered]]:
        """What is answered at once, and what is not, by collection; sources on trial are asked for a word first."""
        requests, places = _numbered(batched)
        if not requests:
            return dict.fromkeys(batched, NO_ANSWERS), []
        self._spend(requests)
        reply = self._stages.embed(requests, brisk=True, trials=trials)
        self._job_progress.retried(reply.retries)
        answers = answers_by_collection([reply.answered], places)
        missing = {name: [place for place in within if place in reply.away] for name, within in places.items()}
        return answers, [
            Unanswered(
                name, reply.away[found[0]], frozenset(item.doc_id for place in found for item in requests[place].inputs)
            )
            for name, found in missing.items()
            if found
        ]

    def _asked(self, requests: Mapping[int, BatchRequest]) -> list[pa.Table]:
        """What was answered, in as many goes as it took."""
        tables: list[pa.Table] = []
        for attempt in count():
            if not requests:
                break
            self._spend(requests)
            reply = self._stages.embed(requests)
            tables.append(reply.answered)
            self._job_progress.retried(reply.retries + (len(requests) if attempt else 0))
            requests = {place: request for place, request in requests.items() if place in reply.away}
            if requests:
                place, request = next(iter(requests.items()))
                self._patience.outage(request, reply.away[place], attempt)
        self._patience.answered()
        return tables

    def _spend(self, requests: Mapping[int, BatchRequest]) -> None:
        self._patience.pause(self._allowance.wait(self._clock.monotonic()))
        self._allowance.spend(len(requests), sum(request.tokens_total for request in requests.values()))


def _numbered(
    batched: Mapping[CollectionName, Batched],
) -> tuple[dict[int, BatchRequest], dict[CollectionName, range]]:
    """All requests of a round by their number, and which numbers are of which collection."""
    requests: list[BatchRequest] = []
    places: dict[CollectionName, range] = {}
    for name, one in batched.items():
        places[name] = range(len(requests), len(requests) + len(one.requests))
        requests += one.requests
    return dict(enumerate(requests)), places
