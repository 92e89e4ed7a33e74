"""Vectors cut to their first numbers: of length one again, refused when the model answers others, found in a search."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from penstock.documents.embedding import (
    ModelProfile,
    ShortenedProvider,
    StaticProvider,
    Vectors,
    check_local,
    profile_of,
)
from penstock.documents.embedding.shortened import shortened
from penstock.errors import Corrupt, InvalidInput, Unsupported
from penstock.indexing import Embedding
from penstock.testing.servers.embedding_server import EmbeddingServer, vector_of
from penstock.testing.shelf import IndexShelf
from penstock.vector import CollectionName

PROFILE = ModelProfile(
    name="tested-model",
    tokens_per_request=100_000,
    items_per_request=64,
    tokens_per_input=4_000,
    dimensions=8,
    model_dimensions=32,
)


def test_the_first_numbers_are_kept_and_the_length_is_one_again() -> None:
    rows = np.stack([vector_of("otters", 32), np.zeros(32, np.float32)])
    cut = shortened(rows, PROFILE)
    assert cut.shape == (2, 8)
    np.testing.assert_allclose(np.linalg.norm(cut, axis=1), [1.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(cut[0] / cut[0, 0], rows[0, :8] / rows[0, 0], rtol=1e-5)


def test_a_model_that_answers_other_vectors_is_named() -> None:
    with pytest.raises(Corrupt, match="vectors of 16 numbers"):
        shortened(np.ones((1, 16), np.float32), PROFILE)
    assert shortened(np.ones((0, 16), np.float32), PROFILE).shape == (0, 8)


def test_vectors_cannot_be_cut_to_more_than_they_have() -> None:
    with pytest.raises(InvalidInput, match="cannot be cut to 64"):
        msgspec.structs.replace(PROFILE, dimensions=64)


def test_a_local_model_can_be_cut_too() -> None:
    whole = StaticProvider()
    profile = msgspec.structs.replace(
        profile_of(whole.profile.name), dimensions=64, model_dimensions=whole.profile.dimensions
    )
    cut = asyncio.run(ShortenedProvider(whole, profile).embed(["otters swim"], idempotency_key="k"))
    assert isinstance(cut, Vectors)
    assert cut.rows.shape == (1, 64)


def test_an_index_of_a_shortened_model_is_built_searched_and_remembers_its_profile(tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    shelf = replace(IndexShelf(None, tmp_path), name=CollectionName("acme", "handbook", PROFILE.name))
    with EmbeddingServer(dimensions=32) as server:
        done = shelf.run(
            shelf.write("note.txt", "Otters swim in the river."),
            embedding=Embedding(server.url, profiles={PROFILE.name: PROFILE}),
        )
        assert (done.documents, done.words_only) == (1, 0)
        # What the index remembers is enough for another job.
        again = shelf.run(shelf.write("other.txt", "Herons stand in the reeds."), embedding=Embedding(server.url))
        assert again.documents == 1
    assert len(shelf.chunks()) == 2


def test_an_index_of_bytes_is_built_and_remembers_its_profile(tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    profile = msgspec.structs.replace(PROFILE, dimensions=16, vector_type="int8")
    shelf = replace(IndexShelf(None, tmp_path), name=CollectionName("acme", "handbook", profile.name))
    with EmbeddingServer(dimensions=32) as server:
        for name, embedding in (
            ("note.txt", Embedding(server.url, profiles={profile.name: profile})),
            ("other.txt", Embedding(server.url)),
        ):
            done = shelf.run(shelf.write(name, f"Otters swim in the {name}."), embedding=embedding)
            assert (done.documents, done.words_only) == (1, 0)
    assert len(shelf.chunks()) == 2


def test_a_model_in_this_process_is_not_asked_for_bytes() -> None:
    profile = msgspec.structs.replace(profile_of("penstock-static-256-v2"), vector_type="int8")
    with pytest.raises(Unsupported, match="cannot answer int8"):
        check_local(profile.name, profile)
