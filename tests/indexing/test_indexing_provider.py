"""The indexing job beside an embedding provider over HTTP: what is sent to it, and what it costs."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from penstock.documents import ChunkingConfig
from penstock.documents.embedding import DispatchPolicy, ModelProfile, RateLimit
from penstock.errors import Unavailable
from penstock.indexing.job.summary import IndexingSummary
from penstock.indexing.planning.plan import RoundLimits
from penstock.indexing.stages.embedding import Embedding, Endpoint
from penstock.observability import Event, names
from penstock.testing import RecordingObserver
from penstock.testing.following import Following
from penstock.testing.servers.embedding_server import EmbeddingServer, ProviderFaults, contents_by_place
from penstock.testing.shelf import IndexShelf
from penstock.vector import CollectionName

MODEL = "tested-model"
PROFILE = ModelProfile(
    name=MODEL,
    tokens_per_request=100_000,
    items_per_request=64,
    tokens_per_input=4_000,
    dimensions=32,
    usd_per_million_tokens=10.0,
)
# Only a test that fails waits so long.
PATIENCE_SECONDS = 240.0
POLICY = DispatchPolicy(attempts_max=3, pause_seconds=0.02, pause_seconds_max=0.1)


@pytest.fixture
def remote(shelf: IndexShelf) -> IndexShelf:
    """A shelf whose documents are embedded by the tested model."""
    return replace(shelf, name=CollectionName("acme", "handbook", MODEL))


def asked(server: EmbeddingServer) -> Embedding:
    return Embedding(server.url, profile=PROFILE, policy=POLICY)


def essay(seed: int, size: int) -> str:
    """Paragraphs of words without repetition, as long as that."""
    chance = random.Random(seed)
    words = ["".join(chance.choices("aeioubcdfgklmnprst", k=chance.randint(2, 9))) for _ in range(4000)]
    paragraphs: list[str] = []
    length = 0
    while length < size:
        paragraph = " ".join(chance.choices(words, k=chance.randint(30, 120))).capitalize() + "."
        paragraphs.append(paragraph)
        length += len(paragraph) + 2
    return "\n\n".join(paragraphs)


@pytest.mark.slow
def test_after_an_insertion_in_the_middle_of_a_large_text_only_what_changed_is_sent_and_paid_for(
    remote: IndexShelf,
) -> None:
    text = essay(1, 3_000_000)
    with EmbeddingServer(dimensions=PROFILE.dimensions) as server:
        config: dict[str, Any] = {"embedding": asked(server), "chunking": ChunkingConfig()}
        first = remote.run(remote.write("book.txt", text), **config)
        sent = sum(ask.texts for ask in server.asks)
        assert (first.chunks, first.reused) == (sent, 0)

        middle = text.index("\n\n", len(text) // 2)
        changed = text[:middle] + "\n\n" + essay(2, 5_000) + text[middle:]
        # Another job with another checkpoint, as another process would be.
        second = remote.run(remote.write("book.txt", changed), checkpoint="another", **config)
        sent_again = sum(ask.texts for ask in server.asks) - sent
    assert second.chunks == len(remote.chunks()) == second.reused + sent_again
    assert 0 < sent_again <= 0.05 * second.chunks
    assert 0 < second.cost_usd < 0.06 * first.cost_usd
    report = remote.entries()["book.txt"].report
    assert report is not None
    assert (report.reused, report.chunks) == (second.reused, second.chunks)


class Onlooker(RecordingObserver):
    """Does something at one of the outages, and looks at what was planned at every one."""

    def __init__(self, shelf: IndexShelf, at: int, work: Callable[[], None]) -> None:
        super().__init__()
        self._shelf, self._at, self._work = shelf, at, work
        self.planned: list[int | None] = []

    def event(self, event: Event, **fields: Any) -> None:
        super().event(event, **fields)
        if event is names.INDEXING_OUTAGE:
            self.planned.append(self._shelf.position())
            if len(self.planned) == self._at:
                self._work()


@pytest.mark.slow
def test_while_following_a_provider_that_stays_away_is_waited_for_and_the_queue_is_not_read_further(
    remote: IndexShelf,
) -> None:
    faults = ProviderFaults(busy=1.0, in_a_row_max=8)
    later = remote.write("later.txt", "Herons stand in the reeds.")
    onlooker = Onlooker(remote, 2, lambda: remote.send(later))
    done = threading.Event()

    def seen(summary: IndexingSummary) -> None:
        if summary.documents == 2:
            done.set()

    with EmbeddingServer(dimensions=PROFILE.dimensions, faults=faults) as server:
        embedding = Embedding(server.url, profile=PROFILE, policy=replace(POLICY, attempts_max=2))
        remote.send(remote.write("note.txt", "Otters swim in the river."))
        with remote.job(embedding=embedding, observer=onlooker, progress=seen) as job, Following(job):
            assert done.wait(PATIENCE_SECONDS)
        assert all(len(contents) == 1 for contents in contents_by_place(server.asks).values())
    # Four outages of two tries each: nothing behind the first event was planned, or asked for, before the last of them.
    first = onlooker.planned[:4]
    assert len(set(first)) == 1
    assert onlooker.gauged(names.INDEXING_PROVIDER_AWAY) == 0
    assert onlooker.counted(names.INDEXING_PROVIDER_RETRIES) > 0
    assert len(remote.chunks()) == 2


def test_a_run_that_does_not_follow_says_that_the_provider_is_away_and_the_next_one_goes_on(remote: IndexShelf) -> None:
    event = remote.write("note.txt", "Otters swim in the river.")
    with EmbeddingServer(dimensions=PROFILE.dimensions, faults=ProviderFaults(busy=1.0, in_a_row_max=3)) as server:
        with pytest.raises(Unavailable, match="3 tries, the last: 429"):
            remote.run(event, embedding=asked(server))
        assert remote.run(embedding=asked(server)).documents == 1
        assert len(contents_by_place(server.asks)) == 1


@pytest.mark.slow
def test_a_provider_that_refuses_everything_leaves_what_is_searchable_as_it_is(remote: IndexShelf) -> None:
    with EmbeddingServer(dimensions=PROFILE.dimensions) as server:
        remote.run(remote.write("note.txt", essay(4, 20_000)), embedding=asked(server))
    before = remote.chunks()
    changed = remote.write("note.txt", essay(5, 20_000))
    with EmbeddingServer(dimensions=PROFILE.dimensions, faults=ProviderFaults(refusing=True)) as server:
        with pytest.raises(Unavailable, match=r"rejects every text.*nothing is lost"):
            remote.run(changed, embedding=asked(server))
        assert len(server.asks) <= 8
    assert remote.chunks() == before
    with EmbeddingServer(dimensions=PROFILE.dimensions) as server:
        assert remote.run(embedding=asked(server)).documents == 1
    assert remote.chunks() != before


def test_two_indexes_with_differently_keyed_endpoints_do_not_wait_for_each_other(remote: IndexShelf) -> None:
    other = replace(remote, name=CollectionName("globex", "handbook", "other-model"))
    profiles = {MODEL: PROFILE, "other-model": msgspec.structs.replace(PROFILE, name="other-model")}
    remote.send(remote.write("note.txt", "Otters swim in the river."))
    other.send(other.write("other.txt", "Herons stand in the reeds."))
    with (
        EmbeddingServer(dimensions=PROFILE.dimensions, faults=ProviderFaults(key="one")) as first,
        EmbeddingServer(dimensions=PROFILE.dimensions, faults=ProviderFaults(key="two")) as second,
    ):
        endpoints = {MODEL: Endpoint(first.url), "other-model": Endpoint(second.url)}
        embedding = Embedding(endpoints=endpoints, profiles=profiles, policy=POLICY, keys={first.url: "one"})
        with pytest.raises(Unavailable, match=r"other-model did not embed 1 documents: .*401.*wrong key"):
            remote.run(embedding=embedding)
        assert len(remote.chunks()) == 1
        # What the index remembers, and the keys of both.
        keys = {first.url: "one", second.url: "two"}
        assert remote.run(embedding=replace(embedding, endpoints={}, keys=keys)).documents == 1
    assert len(other.chunks()) == 1


def test_a_job_that_is_stopped_ends_while_its_provider_is_away(remote: IndexShelf) -> None:
    waiting = threading.Event()
    onlooker = Onlooker(remote, 1, waiting.set)
    faults = ProviderFaults(busy=1.0, in_a_row_max=10**6)
    with EmbeddingServer(dimensions=PROFILE.dimensions, faults=faults) as server:
        remote.send(remote.write("note.txt", "Otters swim in the river."))
        with remote.job(embedding=asked(server), observer=onlooker) as job, Following(job):
            assert waiting.wait(PATIENCE_SECONDS)
    with EmbeddingServer(dimensions=PROFILE.dimensions) as server:
        assert remote.run(embedding=asked(server)).documents == 1


def test_the_job_tells_what_it_does(remote: IndexShelf) -> None:
    observer = RecordingObserver()
    page = "".join(f"<p>Paragraph {number} tells of rivers and mills.</p>" for number in range(200))
    remote.send(
        remote.write("page.html", f"<html><body>{page}</body></html>"),
        remote.write("note.txt", "Otters swim in the river."),
        remote.upload("never.txt"),
        b"{not a notification",
    )
    with EmbeddingServer(dimensions=PROFILE.dimensions) as server:
        config: dict[str, Any] = {"embedding": asked(server), "rounds": RoundLimits(cells_max=2)}
        with remote.job(observer=observer, **config) as job:
            summary = job.run_available()
    told = observer.counted
    # However many rounds it took, the page was parsed once.
    assert told(names.INDEXING_PARSES) == 1
    assert told(names.INDEXING_DOCUMENTS, status="indexed") == summary.documents == 2
    assert told(names.INDEXING_DOCUMENTS, status="quarantined") == 1
    assert told(names.INDEXING_EVENTS, outcome="planned") == 3
    assert told(names.INDEXING_EVENTS, outcome="refused") == 1
    assert told(names.INDEXING_CHUNKS, origin="embedded") == summary.chunks
    assert told(names.INDEXING_TOKENS) == summary.tokens
    assert told(names.INDEXING_COST_USD) == pytest.approx(summary.cost_usd)
    assert observer.gauged(names.INDEXING_BACKLOG_DOCUMENTS) == observer.gauged(names.INDEXING_LAG_SECONDS) == 0
    for stage in ("read", "batch", "embed", "write"):
        assert len(observer.observed(names.INDEXING_ROUND_SECONDS, stage=stage)) > 3
    assert len(observer.observed(names.INDEXING_LATENCY_SECONDS)) == 3


@pytest.mark.slow
def test_a_rate_limit_is_waited_for_also_in_what_a_run_has_left(remote: IndexShelf) -> None:
    """More requests than may go at once, most of them in rounds that are worked when the query has ended."""
    event = remote.write("book.txt", essay(3, 9_000))
    with EmbeddingServer(dimensions=PROFILE.dimensions) as server:
        embedding = replace(asked(server), rate=RateLimit(requests_per_minute=60))
        summary = remote.run(event, embedding=embedding, rounds=RoundLimits(cells_max=1, rounds_per_batch=1))
        assert len(server.asks) > 6
    assert (summary.documents, summary.chunks) == (1, len(remote.chunks()))
