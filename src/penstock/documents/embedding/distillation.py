"""How the embedded model was made: static word vectors, distilled from a sentence transformer with NumPy alone.

Each word piece of the vocabulary goes through the transformer alone, its vector is reduced by principal components,
weighted down when it is common, and kept in eight bits. A text's vector is then the mean of its pieces' vectors. Run as
`python -m penstock.documents.embedding.distillation MODEL_FOLDER OUT.npz` with the folder of all-MiniLM-L6-v2
(`model.safetensors`, `vocab.txt`); it takes a few minutes and gives the file that this package ships.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["distil"]

Matrix: TypeAlias = npt.NDArray[np.float32]

DIMENSIONS: Final = 256
_HEADS: Final = 12
_LAYERS: Final = 6
_EPSILON: Final = 1e-12
_PIECES_AT_ONCE: Final = 2048
_CLS, _SEP = 101, 102


def distil(folder: Path, out: Path) -> None:
    weights = _weights(folder / "model.safetensors")
    words = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    blocks = [
        _pooled(weights, np.arange(start, min(start + _PIECES_AT_ONCE, len(words))))
        for start in range(0, len(words), _PIECES_AT_ONCE)
    ]
    vectors = _reduced(np.concatenate(blocks)) * _rarity(len(words))[:, None]
    # Markers of the vocabulary itself ([PAD], [unused…]) say nothing of a text.
    vectors[[index for index, word in enumerate(words) if word.startswith("[") and word.endswith("]")]] = 0
    scales = np.abs(vectors).max(axis=1) / 127
    scales[scales == 0] = 1
    quantised = np.rint(vectors / scales[:, None]).astype(np.int8)
    vocabulary = np.frombuffer("\n".join(words).encode(), dtype=np.uint8)
    np.savez(out, vectors=quantised, scales=scales.astype(np.float32), vocabulary=vocabulary)


def _weights(path: Path) -> dict[str, Matrix]:
    """The tensors of a safetensors file: a length, a JSON header, then the numbers."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + size])
    found = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            start, end = entry["data_offsets"]
            found[name] = np.frombuffer(data[8 + size + start : 8 + size + end], "<f4").reshape(entry["shape"])
    return found


def _pooled(w: dict[str, Matrix], pieces: npt.NDArray[np.intp]) -> Matrix:
    """The mean vector of `[CLS] piece [SEP]` for each piece."""
    ids = np.stack([np.full_like(pieces, _CLS), pieces, np.full_like(pieces, _SEP)], axis=1)
    hidden = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:3]
    hidden = _normal(hidden + w["embeddings.token_type_embeddings.weight"][0], w, "embeddings.LayerNorm")
    for layer in range(_LAYERS):
        at = f"encoder.layer.{layer}."
        hidden = _normal(hidden + _attention(hidden, w, at), w, at + "attention.output.LayerNorm")
        inner = _gelu(_linear(hidden, w, at + "intermediate.dense"))
        hidden = _normal(hidden + _linear(inner, w, at + "output.dense"), w, at + "output.LayerNorm")
    pooled: Matrix = hidden.mean(axis=1)
    return pooled


def _attention(hidden: Matrix, w: dict[str, Matrix], at: str) -> Matrix:
    count, length, width = hidden.shape
    shape = (count, length, _HEADS, width // _HEADS)
    query, key, value = (
        _linear(hidden, w, f"{at}attention.self.{part}").reshape(shape).transpose(0, 2, 1, 3)
        for part in ("query", "key", "value")
    )
    scores = query @ key.transpose(0, 1, 3, 2) / np.sqrt(width // _HEADS).astype(np.float32)
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    mixed = (shares @ value).transpose(0, 2, 1, 3).reshape(count, length, width)
    return _linear(mixed, w, at + "attention.output.dense")


def _linear(hidden: Matrix, w: dict[str, Matrix], name: str) -> Matrix:
    mapped: Matrix = hidden @ w[name + ".weight"].T + w[name + ".bias"]
    return mapped


def _normal(hidden: Matrix, w: dict[str, Matrix], name: str) -> Matrix:
    centred = hidden - hidden.mean(axis=-1, keepdims=True)
    spread = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(_EPSILON))
    normal: Matrix = centred / spread * w[name + ".weight"] + w[name + ".bias"]
    return normal


def _gelu(hidden: Matrix) -> Matrix:
    # Within a thousandth of the exact form, which needs the error function.
    inner = np.sqrt(2 / np.pi).astype(np.float32) * (hidden + np.float32(0.044715) * hidden * hidden * hidden)
    bent: Matrix = np.float32(0.5) * hidden * (1 + np.tanh(inner))
    return bent


def _reduced(vectors: Matrix) -> Matrix:
    """Principal components, without the first: it says how common a word is, not what it means."""
    centred = vectors - vectors.mean(axis=0)
    _, directions = np.linalg.eigh(np.cov(centred, rowvar=False))
    reduced: Matrix = (centred @ directions[:, ::-1][:, 1 : DIMENSIONS + 1]).astype(np.float32)
    return reduced


def _rarity(count: int) -> Matrix:
    """A vocabulary is listed by frequency, and Zipf's law turns the place into a weight."""
    return np.log1p(np.arange(count)).astype(np.float32)


if __name__ == "__main__":
    distil(Path(sys.argv[1]), Path(sys.argv[2]))
