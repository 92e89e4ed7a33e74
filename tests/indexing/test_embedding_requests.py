"""Batches are sent until all are answered; those that were answered are not sent again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock.documents import BatchInput, BatchRequest
from penstock.documents.embedding import DispatchPolicy, Later, RateLimit
from penstock.errors import Closed, Unavailable
from penstock.indexing.job.embedding_requests import EmbeddingRequests
from penstock.indexing.job.patience import Patience
from penstock.indexing.job.summary import JobProgress
from penstock.indexing.job.turnstile import Turnstile
from penstock.indexing.registry.entries import BatcherCount
from penstock.indexing.rounds.rounds import Batched
from penstock.indexing.stages.port import EmbeddingReply
from penstock.observability import names
from penstock.testing import ManualClock, RecordingObserver
from penstock.vector import CollectionName

QUICK = DispatchPolicy(pause_seconds=0.001, pause_seconds_max=0.002)
FIRST, SECOND = CollectionName("acme", "handbook", "m"), CollectionName("zeta", "handbook", "m")


def batched(*numbers: int) -> Batched:
    requests = [
        BatchRequest(
            batch_id=f"acme:handbook:m:{number}:0",
            tenant_id="acme",
            index_id="handbook",
            model="m",
            inputs=(BatchInput(doc_id="0" * 64, chunk_id=f"c{number}", seq=0, text="words"),),
            tokens_total=1_000,
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
        )
        for number in numbers
    ]
    return Batched(requests, BatcherCount(), {}, {})


class LeavingStages:
    """Answers the first requests of every call, and is away for the others."""

    def __init__(self, answers_a_call: int) -> None:
        self.calls: list[list[str]] = []
        self._answers_a_call = answers_a_call

    def embed(self, requests: Mapping[int, BatchRequest], **_how: Any) -> EmbeddingReply:
        self.calls.append([request.batch_id for request in requests.values()])
        answered = dict(list(requests.items())[: self._answers_a_call])
        table = pa.table(
            {
                "request": list(answered),
                "chunk_id": [request.inputs[0].chunk_id for request in answered.values()],
                "vector": pa.array([[1.0]] * len(answered), pa.list_(pa.float32())),
                "cost_usd": [0.0] * len(answered),
                "reason": pa.nulls(len(answered), pa.string()),
            }
        )
        return EmbeddingReply(table, {place: Later("busy", 0.001) for place in requests if place not in answered}, 2)


class Office:
    """Something that asks, and what it told."""

    def __init__(self, stages: LeavingStages, *, endless: bool, rate: RateLimit | None = None) -> None:
        self.observer, self.turnstile, self.stopped = RecordingObserver(), Turnstile(), False
        self.patience = Patience(self.turnstile, lambda: self.stopped, QUICK, observer=self.observer)
        self.patience.endless = endless
        told = JobProgress(observer=self.observer)
        any_stages: Any = stages
        self.asking = EmbeddingRequests(any_stages, rate or RateLimit(), self.patience, told, clock=ManualClock())


def test_what_was_answered_is_kept_and_the_rest_is_sent_again_as_it_was() -> None:
    stages = LeavingStages(answers_a_call=2)
    office = Office(stages, endless=True)
    found = office.asking.answers({FIRST: batched(1, 2, 3), SECOND: batched(4)})
    ids = [f"acme:handbook:m:{number}:0" for number in (1, 2, 3, 4)]
    assert stages.calls == [ids, ids[2:]]
    assert ["c1" in found[FIRST], "c3" in found[FIRST], "c4" in found[FIRST], "c4" in found[SECOND]] == [
        True,
        True,
        False,
        True,
    ]
    assert office.observer.counted(names.INDEXING_PROVIDER_RETRIES) == 2 + 2 + 2
    assert office.observer.gauged(names.INDEXING_PROVIDER_AWAY) == 0
    assert [fields["reason"] for fields in office.observer.events(names.INDEXING_OUTAGE)] == ["busy"]


def test_nobody_is_asked_when_nothing_is_to_be_sent() -> None:
    stages = LeavingStages(answers_a_call=1)
    found = Office(stages, endless=True).asking.answers({FIRST: batched()})
    assert stages.calls == []
    assert "c1" not in found[FIRST]


def test_a_job_that_does_not_wait_says_which_batch_was_not_embedded() -> None:
    office = Office(LeavingStages(answers_a_call=1), endless=False)
    with pytest.raises(Unavailable, match=r"did not embed batch acme:handbook:m:2:0: busy .*nothing is lost"):
        office.asking.answers({FIRST: batched(1, 2)})


def test_a_wait_ends_when_the_query_is_stopped_and_when_the_job_is_closed() -> None:
    office = Office(LeavingStages(answers_a_call=0), endless=True)
    office.stopped = True
    with pytest.raises(Closed, match="stopped"):
        office.asking.answers({FIRST: batched(1)})
    office.turnstile.close()
    with pytest.raises(Closed, match="closed"):
        office.asking.answers({FIRST: batched(1)})


def test_what_a_round_spent_is_waited_for_before_the_next() -> None:
    """The clock stands still, so that nothing is earned: a second round would wait for ever."""
    office = Office(LeavingStages(answers_a_call=9), endless=True, rate=RateLimit(tokens_per_minute=6_000))
    office.asking.answers({FIRST: batched(1)})
    office.turnstile.close()
    with pytest.raises(Closed):
        office.asking.answers({FIRST: batched(2)})
