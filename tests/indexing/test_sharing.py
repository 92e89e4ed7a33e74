"""Vectors are shared among the indexes of one tenant, and among nobody else: what was paid for is not paid for again."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from tests.indexing.priced_model import MODEL, POLICY, PROFILE, asked, sent_texts

from penstock.indexing import Endpoint
from penstock.indexing.stages.embedding import Embedding, OwnModel
from penstock.testing.servers.embedding_server import AskFate, EmbeddingServer, ProviderFaults
from penstock.testing.shelf import IndexShelf, prose
from penstock.vector import CollectionName


def at(shelf: IndexShelf, tenant: str, index: str, clock: int) -> IndexShelf:
    return replace(shelf, name=CollectionName(tenant, index, MODEL), clock=clock)


def test_an_index_takes_over_the_vectors_that_another_index_of_its_tenant_has(
    shelf: IndexShelf, server: EmbeddingServer
) -> None:
    first, second = at(shelf, "acme", "handbook", 0), at(shelf, "acme", "archive", 100)
    text = prose("otters", 30)
    paid = first.run(first.write("a.txt", text), embedding=asked(server))
    assert sent_texts(server) == paid.chunks
    # Another name, so another document with other chunk ids; a paragraph of its own at the end.
    again = second.run(second.write("b.txt", text + "\n\nHerons stand in the reeds."), embedding=asked(server))
    assert 0 < again.reused < again.chunks
    assert sent_texts(server) == paid.chunks + again.chunks - again.reused
    assert again.cost_usd < paid.cost_usd / 2
    assert second.chunks()


def test_tenants_never_share_vectors(shelf: IndexShelf, server: EmbeddingServer) -> None:
    text = prose("otters", 30)
    chunks = 0
    for clock, tenant in enumerate(("acme", "globex")):
        one = at(shelf, tenant, "handbook", 100 * clock)
        done = one.run(one.write("a.txt", text), embedding=asked(server))
        chunks += done.chunks
        assert done.reused == 0
        assert sent_texts(server) == chunks


def test_another_profile_of_a_model_shares_nothing(shelf: IndexShelf, server: EmbeddingServer) -> None:
    other = msgspec.structs.replace(PROFILE, usd_per_million_tokens=11.0)
    own = {("acme", "archive", MODEL): OwnModel(Endpoint(server.url), other)}
    first, second = at(shelf, "acme", "handbook", 0), at(shelf, "acme", "archive", 100)
    embedding = Embedding(policy=POLICY, endpoints={MODEL: Endpoint(server.url)}, profiles={MODEL: PROFILE}, own=own)
    first.run(first.write("a.txt", prose("otters", 30)), embedding=embedding)
    assert second.run(second.write("b.txt", prose("otters", 30)), embedding=embedding).reused == 0


def test_equal_texts_of_one_round_are_sent_once(shelf: IndexShelf, server: EmbeddingServer) -> None:
    first, second = at(shelf, "acme", "handbook", 0), at(shelf, "acme", "archive", 100)
    stranger = at(shelf, "globex", "handbook", 200)
    text = prose("otters", 30)
    first.send(
        first.write("a.txt", text),
        first.write("b.txt", text),
        second.write("c.txt", text),
        stranger.write("d.txt", text),
    )
    with first.job(embedding=asked(server)) as job:
        done = job.run_available()
    each = len(second.chunks())
    assert (done.documents, done.chunks) == (4, 4 * each)
    assert (sent_texts(server), done.reused) == (2 * each, 2 * each)
    assert len(first.chunks()) == 2 * each


def test_a_text_that_the_model_refuses_is_asked_about_once_and_told_of_every_document_that_has_it(
    shelf: IndexShelf,
) -> None:
    one = at(shelf, "acme", "handbook", 0)
    with EmbeddingServer(dimensions=PROFILE.dimensions, faults=ProviderFaults(poison="hemlock")) as server:
        one.send(*(one.write(f"{name}.txt", "hemlock alone") for name in "abc"), one.write("d.txt", "otters"))
        with one.job(embedding=asked(server)) as job:
            done = job.run_available()
        refused = [ask for ask in server.asks if ask.fate is AskFate.REFUSED and ask.texts == 1]
    assert (done.documents, len(refused)) == (1, 1)
    reasons = {entry.report.reason for entry in one.entries().values() if entry.report}
    assert reasons == {None, "the model refused all of its 1 chunks"}
