import asyncio
import os
import subprocess
import sys

import numpy as np
import pytest

from penstock.documents.embedding import EMBEDDED_MODEL, EMBEDDED_MODELS, StaticProvider, profile_of

PROVIDER = StaticProvider()
# What the first table gave before there was another.
FIRST_NUMBERS = [-0.27174655, -0.16558382, -0.21227734]


def similarity(left: str, right: str) -> float:
    rows = PROVIDER.embed_now([left, right]).rows
    return float(rows[0] @ rows[1])


def test_vectors_have_length_one_and_the_dimensions_of_the_profile():
    rows = PROVIDER.embed_now(["The cat sleeps.", "Fish dream of cats, too."]).rows
    assert rows.shape == (2, PROVIDER.profile.dimensions)
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1, 1], abs=1e-5)


@pytest.mark.parametrize(
    ("query", "near", "far"),
    [
        ("how do I delete a file", "Removing files from the disk", "Cats sleep beside windows"),
        ("memory usage of the server", "The process needs too much RAM", "A recipe for apple cake"),
        ("doctor", "The physician examined the patient in the hospital.", "The train leaves at noon."),
        ("network connection timeout", "The socket was closed because the host did not answer.", "Paint dries slowly."),
    ],
)
def test_texts_about_the_same_thing_are_nearer_than_others_without_sharing_words(query, near, far):
    assert similarity(query, near) > similarity(query, far) + 0.1


def test_equal_texts_give_equal_vectors_whatever_stands_beside_them():
    alone = PROVIDER.embed_now(["The cat sleeps."]).rows[0]
    among = PROVIDER.embed_now(["Something else", "The cat sleeps.", ""]).rows[1]
    assert alone.tobytes() == among.tobytes()


def test_an_empty_text_has_no_direction():
    assert not PROVIDER.embed_now([""]).rows.any()


def test_every_language_gets_a_vector(languages):
    rows = PROVIDER.embed_now(list(languages.values())).rows
    assert np.isfinite(rows).all()


def test_the_port_gives_the_same_vectors():
    answer = asyncio.run(PROVIDER.embed(["The cat sleeps."], idempotency_key="k"))
    assert answer.rows.tobytes() == PROVIDER.embed_now(["The cat sleeps."]).rows.tobytes()
    assert answer.tokens > 3


@pytest.mark.processes
def test_the_model_loads_without_a_network_a_home_or_an_environment():
    code = "from penstock.documents.embedding import StaticProvider as P; print(P().embed_now(['cat']).rows.shape)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PATH": os.defpath}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "(1, 256)"


def test_an_index_made_with_the_first_table_still_gets_its_vectors():
    (first,) = EMBEDDED_MODELS - {EMBEDDED_MODEL}
    text = ["how do I delete a file"]
    provider = StaticProvider(first)
    assert provider.profile == profile_of(first)
    assert provider.embed_now(text).rows[0, :3] == pytest.approx(FIRST_NUMBERS, abs=1e-6)
    assert not np.allclose(provider.embed_now(text).rows, PROVIDER.embed_now(text).rows)
