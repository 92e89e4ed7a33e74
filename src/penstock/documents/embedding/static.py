"""The embedded model: static word vectors that need no network, no accelerator and no download.

A text's vector is the mean of the vectors of its word pieces, of length one. The vectors were fitted to what
all-MiniLM-L6-v2 (Apache-2.0) makes of passages, as `tools/embedded_model` shows, and ship with this package; `NOTICE`
beside them says so. The table knows words, not their order: it helps the words of a search, and is no match for a
transformer. The first table stays for the indexes that were made with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.documents.embedding.profiles import EMBEDDED_MODEL, FIRST_EMBEDDED_MODEL, ModelProfile, profile_of
from penstock.documents.embedding.provider import Answer, Vectors
from penstock.errors import Unsupported

__all__ = ["StaticProvider"]

_FILES: Final = {EMBEDDED_MODEL: "static-256-v2.npz", FIRST_EMBEDDED_MODEL: "static-256.npz"}
_UNKNOWN: Final = "[UNK]"
# Longer words are cut by no vocabulary; the tokenizer calls them unknown.
_WORD_CHARACTERS_MAX: Final = 100


class StaticProvider:
    """Embeds in this process, deterministically: equal texts give equal vectors on every machine."""

    def __init__(self, model: str = EMBEDDED_MODEL) -> None:
        self._model = _model(model)
        self._profile = profile_of(model)

    @property
    def profile(self) -> ModelProfile:
        return self._profile

    async def embed(self, texts: Sequence[str], *, idempotency_key: str) -> Answer:
        return self.embed_now(texts)

    def embed_now(self, texts: Sequence[str]) -> Vectors:
        """The same without a loop: for executors and for queries."""
        rows = np.zeros((len(texts), self._profile.dimensions), dtype=np.float32)
        tokens = 0
        table = _Rows(self._model)
        for row, ids in zip(rows, self._model.tokenizer.encode_batch(list(texts)), strict=True):
            tokens += len(ids)
            if ids:
                row[:] = table.mean(np.array(ids))
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        np.divide(rows, norms, out=rows, where=norms > 0)
        return Vectors(rows, tokens)

    async def close(self) -> None:
        """Nothing is held that another provider does not share."""


class _Model:
    def __init__(self, file_name: str) -> None:
        with resources.files(__package__).joinpath("model", file_name).open("rb") as file, np.load(file) as stored:
            # As they are stored: a question needs ten rows of thirty thousand.
            self.vectors: npt.NDArray[np.int8] = stored["vectors"]
            self.scales: npt.NDArray[np.float32] = stored["scales"]
            words = stored["vocabulary"].tobytes().decode("utf-8").split("\n")
        unknown = words.index(_UNKNOWN)
        self.tokenizer = _splintr().WordPieceTokenizer(words, unknown, _WORD_CHARACTERS_MAX, True)


class _Rows:
    """Rows of the table as they are used: the room for them is taken once and not for every text."""

    def __init__(self, model: _Model) -> None:
        self._model = model
        self._stored = np.empty((0, model.vectors.shape[1]), np.int8)
        self._rows = np.empty(self._stored.shape, np.float32)

    def mean(self, ids: npt.NDArray[np.intp]) -> npt.NDArray[np.float32]:
        # Counted first: a long text repeats its words, and each row is fetched once.
        ids = np.sort(ids)
        firsts = np.flatnonzero(np.diff(ids, prepend=-1))
        counts = np.diff(firsts, append=len(ids))
        total: npt.NDArray[np.float32] = counts.astype(np.float32) @ self._rows_of(ids[firsts])
        return total / np.float32(len(ids))

    def _rows_of(self, pieces: npt.NDArray[np.intp]) -> npt.NDArray[np.float32]:
        count = len(pieces)
        if count > len(self._rows):
            self._stored = np.empty((2 * count, self._stored.shape[1]), np.int8)
            self._rows = np.empty(self._stored.shape, np.float32)
        rows = self._rows[:count]
        # All pieces are of the table: clipping changes none, and spares a copy that checking them would take.
        rows[:] = np.take(self._model.vectors, pieces, axis=0, out=self._stored[:count], mode="clip")
        rows *= self._model.scales[pieces, None]
        return rows


@cache
def _model(name: str) -> _Model:
    return _Model(_FILES[name])


def _splintr() -> Any:
    try:
        import splintr
    except ImportError as error:
        raise Unsupported(
            "the embedded model is not available", "splintr-rs is not installed", "install penstock[documents]"
        ) from error
    return splintr
