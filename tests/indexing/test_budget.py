"""A run with a budget: what it may spend, what it leaves, and that nothing is sent twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.indexing.office import Office
from tests.indexing.priced_model import MODEL, POLICY, PROFILE, sent_texts

from penstock.errors import BudgetSpent, InvalidInput
from penstock.indexing import EmbeddingBudget, Endpoint
from penstock.indexing.job.budget import Spending
from penstock.indexing.planning.plan import RoundLimits
from penstock.indexing.stages.embedding import Embedding
from penstock.testing.servers.embedding_server import EmbeddingServer, contents_by_place
from penstock.testing.shelf import IndexShelf, prose
from penstock.vector import CollectionName


@pytest.fixture
def remote(shelf: IndexShelf) -> IndexShelf:
    return replace(shelf, name=CollectionName("acme", "handbook", MODEL))


@pytest.mark.slow
def test_a_run_stops_at_its_budget_and_later_runs_go_on_without_sending_anything_twice(
    remote: IndexShelf, server: EmbeddingServer
) -> None:
    events = [remote.write(f"{number}.txt", prose(f"otter number {number}", 12)) for number in range(6)]
    asked = Embedding(server.url, profile=PROFILE, policy=POLICY)
    remote.send(*events)
    budget = EmbeddingBudget(max_total_tokens=400)
    stops, done, spent = 0, 0, []
    for _ in range(20):
        with remote.job(embedding=asked, budget=budget) as job:
            try:
                job.run_available()
            except BudgetSpent:
                stops += 1
            else:
                done += 1
            spent.append(job.summary.tokens)
        if done:
            break
    assert (stops > 1, done) == (True, 1)
    assert all(0 < tokens <= 400 for tokens in spent)
    assert sent_texts(server) == len(remote.chunks())
    assert all(len(contents) == 1 for contents in contents_by_place(server.asks).values())
    assert {entry.pending for entry in remote.entries().values()} == {None}


def test_a_budget_in_dollars_is_kept_by_what_the_provider_asks_for(remote: IndexShelf, server: EmbeddingServer) -> None:
    remote.send(*(remote.write(f"{number}.txt", prose(f"heron number {number}", 12)) for number in range(6)))
    asked = Embedding(server.url, profile=PROFILE, policy=POLICY)
    with remote.job(embedding=asked, budget=EmbeddingBudget(max_dollars=0.007)) as job:
        with pytest.raises(BudgetSpent, match="are left"):
            job.run_available()
        assert 0 < job.summary.cost_usd <= 0.007
        assert job.summary.pending > 0


def test_a_model_that_costs_nothing_is_not_held_up_by_a_budget_in_dollars(
    remote: IndexShelf, shelf: IndexShelf, server: EmbeddingServer
) -> None:
    free = replace(shelf, name=replace(shelf.name, index="free"), clock=1000)
    remote.send(
        remote.write("paid.txt", prose("otters", 40)),
        *(free.write(f"{n}.txt", prose(f"reeds {n}", 9)) for n in range(3)),
    )
    asked = Embedding(policy=POLICY, endpoints={MODEL: Endpoint(server.url)}, profiles={MODEL: PROFILE})
    with remote.job(embedding=asked, budget=EmbeddingBudget(max_dollars=0.0001)) as job:
        with pytest.raises(BudgetSpent):
            job.run_available()
        assert job.summary.documents == 3
    assert not server.asks
    assert len(free.entries()) == 3


def test_a_job_that_follows_ends_at_its_budget(remote: IndexShelf, server: EmbeddingServer) -> None:
    remote.send(remote.write("note.txt", prose("otters", 40)))
    asked = Embedding(server.url, profile=PROFILE, policy=POLICY)
    with remote.job(embedding=asked, budget=EmbeddingBudget(max_total_tokens=5)) as job, pytest.raises(BudgetSpent):
        job.follow()
    assert not server.asks


@pytest.mark.slow
def test_a_large_document_goes_on_where_the_budget_stopped_it(remote: IndexShelf, server: EmbeddingServer) -> None:
    remote.send(remote.write("book.txt", prose("otters and herons", 200)))
    asked = Embedding(server.url, profile=PROFILE, policy=POLICY)
    rounds = RoundLimits(cells_max=1)
    runs = 0
    while runs < 50:
        runs += 1
        with remote.job(embedding=asked, budget=EmbeddingBudget(max_total_tokens=900), rounds=rounds) as job:
            try:
                job.run_available()
                break
            except BudgetSpent:
                continue
    assert 2 < runs < 50
    assert sent_texts(server) == len(remote.chunks())


def test_texts_that_are_known_are_free(remote: IndexShelf, server: EmbeddingServer) -> None:
    asked = Embedding(server.url, profile=PROFILE, policy=POLICY)
    remote.run(remote.write("note.txt", prose("otters", 12)), embedding=asked)
    before = sent_texts(server)
    again = remote.run(
        remote.write("copy.txt", prose("otters", 12)), embedding=asked, budget=EmbeddingBudget(max_total_tokens=1)
    )
    assert (again.documents, sent_texts(server)) == (1, before)


@pytest.mark.parametrize("wrong", [{"max_dollars": 0.0}, {"max_dollars": float("nan")}, {"max_total_tokens": -1}])
def test_a_budget_of_nothing_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="above 0"):
        EmbeddingBudget(**wrong)  # type: ignore[arg-type]


def test_a_provider_that_counts_more_tokens_makes_the_next_documents_dearer() -> None:
    spending = Spending(EmbeddingBudget(max_dollars=10.0))
    assert spending.admit("m", 200_000, PROFILE)
    spending.settle(200_000, 4.0, 2.0)
    # 350,000 tokens would cost 3.5 by the table, and 7 as this provider counts.
    assert not spending.admit("m", 350_000, PROFILE)
    assert spending.admit("m", 299_000, PROFILE)


def test_a_crash_in_a_round_that_was_cut_to_the_budget_never_gives_one_batch_two_contents(tmp_path: Path) -> None:
    office = Office(tmp_path)
    # Three tokens a document, and so two documents.
    office.budget = EmbeddingBudget(max_total_tokens=7)
    rows = office.rows("a", "b", "c", "d")

    def crash() -> None:
        raise RuntimeError("killed")

    office.stages.on_embed = crash
    with pytest.raises(RuntimeError, match="killed"), office.indexer() as indexer:
        indexer.take(rows)
        indexer.round()
    office.stages.on_embed = lambda: None
    office.budget = EmbeddingBudget()
    with office.indexer() as indexer:
        while not indexer.idle:
            indexer.work()
        assert {key: report and report.chunks for key, report in office.reports(indexer).items()} == dict.fromkeys(
            "abcd", 1
        )
    batches = [batch for batch, _ in office.stages.sent]
    assert len(office.stages.sent[0][1]) == 2
    assert len(batches) == len(set(batches))
