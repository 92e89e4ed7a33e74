"""all-MiniLM-L6-v2 in this process, through onnxruntime: texts in, vectors of length one out.

Texts are sorted by length and padded only beside their like. The model was published for up to 256 pieces at once: a
longer text is cut into even windows, and its vector is the mean of theirs, weighted by their lengths, so that nothing
is cut off. One session serves a process; it holds about 150 MB.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Sequence
from importlib import resources
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.documents.embedding.minilm.weights import INSTALL_LINE, MiniLmFiles, find_folder, find_weights
from penstock.errors import Unsupported

__all__ = ["DIMENSIONS", "MiniLmEncoder", "check_installed", "shared_encoder"]

DIMENSIONS: Final = 384
_GRAPH: Final = "model.onnx"
# With both markers, as published.
_PIECES_MAX: Final = 256
# Pieces of one call: more gain nothing, and cost memory.
_CALL_PIECES_MAX: Final = 4096
_CLS, _SEP, _UNKNOWN = 101, 102, 100
# Longer words are cut by no vocabulary; the tokenizer calls them unknown.
_WORD_CHARACTERS_MAX: Final = 100
_ERRORS_ONLY: Final = 3


class _Window(NamedTuple):
    """A part of a text that the model takes at once."""

    text: int
    pieces: list[int]


class MiniLmEncoder:
    """One session. Calls may come from several threads: the runtime allows it."""

    def __init__(self, files: MiniLmFiles, threads: int = 1) -> None:
        runtime = _runtime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(files.folder))
        graph = resources.files(__package__).joinpath(_GRAPH).read_bytes()
        self._session = runtime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self._tokenizer = _splintr().WordPieceTokenizer(files.pieces, _UNKNOWN, _WORD_CHARACTERS_MAX, True)

    def encode(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.float32], int]:
        """One row a text, zero for a text without words, and how many pieces there were."""
        pieces = self.pieces(texts)
        return self.encode_pieces(pieces), sum(map(len, pieces))

    def pieces(self, texts: Sequence[str]) -> list[list[int]]:
        """The word pieces of each text, by their ids and without markers."""
        found: list[list[int]] = self._tokenizer.encode_batch(list(texts))
        return found

    def encode_pieces(self, pieces: Sequence[list[int]]) -> npt.NDArray[np.float32]:
        windows = [window for place, ids in enumerate(pieces) for window in _windows(place, ids)]
        rows = np.zeros((len(pieces), DIMENSIONS), np.float32)
        windows.sort(key=lambda window: len(window.pieces))
        for batch in _batches(windows):
            lengths = np.array([len(window.pieces) for window in batch])
            vectors = self._run(batch, lengths)
            np.add.at(rows, [window.text for window in batch], vectors * lengths[:, None].astype(np.float32))
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        np.divide(rows, norms, out=rows, where=norms > 0)
        return rows

    def _run(self, batch: list[_Window], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        mask = (np.arange(lengths.max() + 2) < lengths[:, None] + 2).astype(np.int32)
        ids = np.zeros_like(mask)
        for row, window in zip(ids, batch, strict=True):
            row[: len(window.pieces) + 2] = [_CLS, *window.pieces, _SEP]
        (vectors,) = self._session.run(None, {"ids": ids, "mask": mask})
        found: npt.NDArray[np.float32] = vectors
        return found


def _windows(place: int, ids: list[int]) -> Iterator[_Window]:
    """A text in as few windows as hold it, all of about the same length."""
    count = math.ceil(len(ids) / (_PIECES_MAX - 2))
    size = math.ceil(len(ids) / count) if count else 0
    for start in range(0, len(ids), size or 1):
        yield _Window(place, ids[start : start + size])


def _batches(windows: list[_Window]) -> Iterator[list[_Window]]:
    """Windows in order of length, so many that their padded pieces fit in a call."""
    batch: list[_Window] = []
    for window in windows:
        if batch and (len(batch) + 1) * (len(window.pieces) + 2) > _CALL_PIECES_MAX:
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch


class _Shared:
    """The session of this process. A child of `fork` makes its own: the runtime's threads do not come along."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._encoder: MiniLmEncoder | None = None
        os.register_at_fork(after_in_child=self._forget)

    def get(self) -> MiniLmEncoder:
        with self._lock:
            if self._encoder is None:
                self._encoder = MiniLmEncoder(find_weights())
            return self._encoder

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._encoder = None


_SHARED: Final = _Shared()


def shared_encoder() -> MiniLmEncoder:
    """The one encoder of this process, loaded when it is first asked for; one thread, as workers run side by side."""
    return _SHARED.get()


def check_installed() -> None:
    """Raise `Unsupported` unless the runtime, the tokenizer and the weights are installed. Loads nothing."""
    for module, package in (("onnxruntime", "onnxruntime"), ("splintr", "splintr-rs")):
        if find_spec(module) is None:
            raise Unsupported(
                "the model all-MiniLM-L6-v2 is not available", f"{package} is not installed", INSTALL_LINE
            )
    find_folder()


def _runtime() -> Any:
    check_installed()
    import onnxruntime

    return onnxruntime


def _splintr() -> Any:
    import splintr

    return splintr
