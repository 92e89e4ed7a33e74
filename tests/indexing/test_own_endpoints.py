"""Indexes of one store whose model has one name and lies at two addresses: each is asked for its own documents alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.documents.embedding import DispatchPolicy, ModelProfile
from penstock.errors import Unavailable
from penstock.indexing.stages.embedding import Embedding, Endpoint, OwnModel
from penstock.testing.servers.embedding_server import EmbeddingServer, ProviderFaults
from penstock.testing.shelf import IndexShelf
from penstock.vector import CollectionName

MODEL = "one-name"
POLICY = DispatchPolicy(attempts_max=2, pause_seconds=0.01, pause_seconds_max=0.05)


def profile(dimensions: int) -> ModelProfile:
    return ModelProfile(
        name=MODEL, tokens_per_request=10_000, items_per_request=8, tokens_per_input=500, dimensions=dimensions
    )


def given(shelf: IndexShelf, server: EmbeddingServer, dimensions: int, key: str | None = None) -> Embedding:
    """Who embeds for the index of a shelf, as its own command says it."""
    name = shelf.name
    own = OwnModel(Endpoint(server.url, key), profile(dimensions))
    return Embedding(own={(name.tenant, name.index, name.model): own}, policy=POLICY)


@pytest.fixture
def notes(engine: None, tmp_path: Path) -> IndexShelf:
    return IndexShelf(engine, tmp_path, CollectionName("acme", "notes", MODEL))


@pytest.fixture
def plans(notes: IndexShelf) -> IndexShelf:
    """Another tenant's index in the same store."""
    return replace(notes, name=CollectionName("globex", "plans", MODEL), clock=500)


def asked(server: EmbeddingServer) -> int:
    return sum(ask.texts for ask in server.asks)


@pytest.mark.slow
def test_two_indexes_with_one_model_name_ask_it_each_at_its_own_address(notes: IndexShelf, plans: IndexShelf) -> None:
    with EmbeddingServer(dimensions=16) as near, EmbeddingServer(dimensions=24) as far:
        notes.run(notes.write("a.txt", "Otters swim."), embedding=given(notes, near, 16))
        # The command of one index finds the other's events too.
        notes.send(notes.write("b.txt", "Herons stand."))
        plans.run(plans.write("c.txt", "Bees hum."), embedding=given(plans, far, 24))
        assert (asked(near), asked(far)) == (2, 1)
        # A job that is given nothing goes by what the indexes remember.
        notes.send(notes.write("d.txt", "Owls hunt."))
        plans.run(plans.write("e.txt", "Ants march."), embedding=Embedding(policy=POLICY))
        assert (asked(near), asked(far)) == (3, 2)
    assert (len(notes.chunks()), len(plans.chunks())) == (3, 2)


def test_an_address_that_is_given_for_one_index_moves_no_other(notes: IndexShelf, plans: IndexShelf) -> None:
    with EmbeddingServer(dimensions=16) as near, EmbeddingServer(dimensions=16) as far:
        for shelf in (notes, plans):
            shelf.run(shelf.write(f"{shelf.name.index}.txt", "Otters swim."), embedding=given(shelf, near, 16))
        notes.send(notes.write("b.txt", "Herons stand."))
        plans.run(plans.write("c.txt", "Bees hum."), embedding=given(plans, far, 16))
        assert (asked(near), asked(far)) == (3, 1)


@pytest.mark.slow
def test_an_address_that_does_not_answer_keeps_the_other_index_of_its_model_from_nothing(
    notes: IndexShelf, plans: IndexShelf
) -> None:
    with EmbeddingServer(dimensions=16) as near, EmbeddingServer(dimensions=16) as far:
        notes.run(notes.write("a.txt", "Otters swim."), embedding=given(notes, near, 16))
        plans.run(plans.write("b.txt", "Bees hum."), embedding=given(plans, far, 16))
    with (
        EmbeddingServer(dimensions=16, faults=ProviderFaults(busy=1.0, in_a_row_max=1000)) as away,
        EmbeddingServer(dimensions=16) as back,
    ):
        both = replace(given(notes, back, 16), own={**given(notes, back, 16).own, **given(plans, away, 16).own})
        notes.send(*(notes.write(f"{number}.txt", f"Note {number}.") for number in range(5)))
        with pytest.raises(Unavailable, match="did not embed 5 documents"):
            plans.run(*(plans.write(f"p{number}.txt", f"Plan {number}.") for number in range(5)), embedding=both)
        assert asked(back) == 5
        entries = notes.entries()
        assert all(entries[f"{number}.txt"].pending is None for number in range(5))
        # It answers again.
        healed = replace(given(notes, back, 16), own={**both.own, **given(plans, back, 16).own})
        plans.run(embedding=healed)
    assert all(entry.pending is None for entry in plans.entries().values())


def test_a_new_index_is_not_embedded_by_the_address_that_another_was_given(
    notes: IndexShelf, plans: IndexShelf
) -> None:
    """Its event is refused, and says why: nobody's texts go to somebody else's endpoint."""
    with EmbeddingServer(dimensions=16) as near:
        plans.send(plans.write("c.txt", "Bees hum."))
        summary = notes.run(notes.write("a.txt", "Otters swim."), embedding=given(notes, near, 16, "secret"))
        assert asked(near) == 1
    assert (summary.documents, summary.refused) == (1, 1)
