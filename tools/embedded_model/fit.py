"""Fits the embedded table: one vector a word piece, so that the mean over a text comes near what the teacher makes of it.

`python -m tools.embedded_model.fit PASSAGES.jsonl TAUGHT_FOLDER OUT.npz` needs `penstock[minilm]` and `scipy`, and takes
some minutes. It begins with the teacher's vector of each piece alone, weighted down where the piece is common, and
goes through the passages with Adam. Two losses count: how far a text's vector is from the teacher's, in 256 principal
components; and whether a passage is told from others of the same project by its heading, or by a part of itself. One
passage in twenty is kept out, and what the table makes of those is printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse
from tools.embedded_model.teacher import query_of, short, shuffled

from penstock.documents.embedding.minilm import MiniLmEncoder, find_weights

Matrix: TypeAlias = npt.NDArray[np.float32]
Sparse: TypeAlias = Any

DIMENSIONS: Final = 256
_SEED: Final = 20261117
_BATCH: Final = 512
_TEMPERATURE: Final = 0.05
# Of the smoothed inverse frequency: a piece this common counts half.
_COMMON: Final = 1e-3
_HELD_OUT: Final = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("passages", type=Path)
    parser.add_argument("taught", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=0.002)
    parser.add_argument("--teaching", type=float, default=1.0, help="weight of the teacher's vectors")
    parser.add_argument("--telling", type=float, default=1.0, help="weight of telling passages apart")
    asked = parser.parse_args()
    files = find_weights()
    encoder = MiniLmEncoder(files, threads=2)
    lesson = Lesson(encoder, asked.passages, asked.taught, len(files.pieces))
    table = FittedTable(lesson.first_table(piece_vectors(encoder, len(files.pieces), asked.taught)))
    print(f"{'epoch':>6}{'loss':>9}{'cosine':>9}{'found':>9}   (of passages that were kept out)", flush=True)
    print(f"{0:6}{'':9}{lesson.judged(table.vectors)}", flush=True)
    steps = asked.epochs * lesson.batches
    for epoch in range(asked.epochs):
        losses = []
        for batch in lesson.epoch(np.random.default_rng([_SEED, epoch])):
            loss, slope = lesson.slope(table.vectors, batch, asked.teaching, asked.telling)
            # A rate that falls to nothing: the last steps settle what the first ones stirred up.
            table.step(slope, asked.rate * (1 - table.steps / steps))
            losses.append(loss)
        print(f"{epoch + 1:6}{np.mean(losses):9.4f}{lesson.judged(table.vectors)}", flush=True)
    save(asked.out, table.vectors, files.pieces)


class FittedTable:
    """The vectors of all pieces, and Adam's memory of their slopes."""

    def __init__(self, vectors: Matrix) -> None:
        self.vectors = vectors
        self.steps = 0
        self._mean = np.zeros_like(vectors)
        self._square = np.zeros_like(vectors)

    def step(self, slope: Matrix, rate: float) -> None:
        self.steps += 1
        self._mean += 0.1 * (slope - self._mean)
        self._square += 0.001 * (slope * slope - self._square)
        mean = self._mean / (1 - 0.9**self.steps)
        square = self._square / (1 - 0.999**self.steps)
        self.vectors -= np.float32(rate) * mean / (np.sqrt(square) + 1e-8)


class Lesson:
    """Passages as counts of pieces, what the teacher made of them, and the losses."""

    def __init__(self, encoder: MiniLmEncoder, passages: Path, taught: Path, pieces: int) -> None:
        blocks = [np.load(path) for path in sorted(taught.glob("[0-9]*.npz")) if "part" not in path.name]
        texts = np.concatenate([block["texts"] for block in blocks]).astype(np.float32)
        queries = np.concatenate([block["queries"] for block in blocks]).astype(np.float32)
        known = shuffled(passages)
        # The teacher may have been stopped; what it has not read is still told apart.
        self._taught = len(texts)
        self._mean, self._directions = _components(np.concatenate([texts, queries]))
        self._texts, self._queries = self.reduced(texts), self.reduced(queries)
        self._sources = np.unique([passage["source"] for passage in known], return_inverse=True)[1]

        def counted(written: list[str]) -> Sparse:
            return _means([np.array(ids) for ids in encoder.pieces(written)], pieces)

        self.short = counted([short(passage["text"]) for passage in known])
        self.whole = counted([passage["text"] for passage in known])
        self.named = counted([query_of(passage) for passage in known])
        self.headed = counted([passage["heading"] for passage in known])
        halves = [passage["text"].split() for passage in known]
        self.first = counted([" ".join(words[: len(words) // 3]) for words in halves])
        self.rest = counted([" ".join(words[len(words) // 3 :]) for words in halves])
        self._kept_out = np.arange(len(known)) % _HELD_OUT == 0
        self.batches = int(np.ceil((~self._kept_out).sum() / _BATCH))

    def reduced(self, vectors: Matrix) -> Matrix:
        centred: Matrix = vectors - self._mean
        return _unit(centred @ self._directions)

    def first_table(self, alone: Matrix) -> Matrix:
        """The teacher's vectors of pieces alone, by how common each is in the passages."""
        seen = np.asarray(self.whole.sum(axis=0)).ravel() / self.whole.shape[0]
        weighted: Matrix = self.reduced(alone) * (_COMMON / (_COMMON + seen))[:, None].astype(np.float32)
        return weighted

    def epoch(self, chance: np.random.Generator) -> Iterator[npt.NDArray[np.intp]]:
        """Batches of which each is mostly of a few projects: passages of one project are hard to tell apart."""
        rows = np.flatnonzero(~self._kept_out)
        rows = rows[np.lexsort((chance.random(len(rows)), self._sources[rows]))]
        pieces = np.array_split(rows, len(rows) // 64)
        order = chance.permutation(len(pieces))
        mixed = np.concatenate([pieces[place] for place in order])
        yield from np.array_split(mixed, self.batches)

    def slope(self, table: Matrix, rows: npt.NDArray[np.intp], teaching: float, telling: float) -> tuple[float, Matrix]:
        total, slope = 0.0, np.zeros_like(table)
        read = rows[rows < self._taught]
        for counts, taught in ((self.short, self._texts), (self.named, self._queries)) if len(read) else ():
            total += _near(table, counts[read], taught[read], teaching, slope)
        for asked, told in ((self.named, self.whole), (self.headed, self.whole), (self.first, self.rest)):
            total += _told_apart(table, asked[rows], told[rows], telling, slope)
        return total, slope

    def judged(self, table: Matrix) -> str:
        """Of passages that were kept out: nearness to the teacher, and how often a heading finds its own first."""
        rows = np.flatnonzero(self._kept_out)
        read = rows[rows < self._taught]
        near = (_unit(self.short[read] @ table) * self._texts[read]).sum(axis=1).mean()
        scores = _unit(self.named[rows] @ table) @ _unit(self.whole[rows] @ table).T
        return f"{near:9.3f}{(scores.argmax(axis=1) == np.arange(len(rows))).mean():9.3f}"


def piece_vectors(encoder: MiniLmEncoder, pieces: int, folder: Path) -> Matrix:
    """The teacher's vector of each piece alone, kept beside what else it was asked for."""
    path = folder / "pieces.npy"
    if not path.exists():
        np.save(path, encoder.encode_pieces([[place] for place in range(pieces)]))
    found: Matrix = np.load(path)
    return found


def _components(vectors: Matrix) -> tuple[Matrix, Matrix]:
    mean = vectors.mean(axis=0)
    _, directions = np.linalg.eigh(np.cov(vectors - mean, rowvar=False))
    return mean, directions[:, ::-1][:, :DIMENSIONS].astype(np.float32)


def _means(ids: list[npt.NDArray[np.intp]], pieces: int) -> Sparse:
    """Rows that turn a table into the mean vector of each text."""
    lengths = np.array([len(each) for each in ids])
    rows = np.repeat(np.arange(len(ids)), lengths)
    shares = np.repeat(1 / np.maximum(lengths, 1), lengths).astype(np.float32)
    columns = np.concatenate(ids).astype(np.int64)
    return scipy.sparse.csr_matrix((shares, (rows, columns)), shape=(len(ids), pieces))


def _unit(vectors: Matrix) -> Matrix:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Matrix = vectors / np.maximum(norms, 1e-9)
    return unit


def _near(table: Matrix, counts: Sparse, taught: Matrix, weight: float, slope: Matrix) -> float:
    """One minus the cosine to what the teacher says; its slope is added."""
    means = counts @ table
    norms = np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-6)
    unit = means / norms
    cosines = (unit * taught).sum(axis=1, keepdims=True)
    slope += counts.T @ ((cosines * unit - taught) / norms * np.float32(weight / len(means)))
    return float(weight * (1 - cosines.mean()))


def _told_apart(table: Matrix, asked: Sparse, told: Sparse, weight: float, slope: Matrix) -> float:
    """The cross-entropy of finding each passage among those of the batch; its slope is added."""
    means = [counts @ table for counts in (asked, told)]
    norms = [np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-6) for each in means]
    left, right = (each / norm for each, norm in zip(means, norms, strict=True))
    scores = left @ right.T / _TEMPERATURE
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    loss = -np.log(np.maximum(np.diagonal(shares), 1e-9)).mean()
    pull = (shares - np.eye(len(shares), dtype=np.float32)) * np.float32(weight / _TEMPERATURE / len(shares))
    for counts, unit, norm, towards in ((asked, left, norms[0], pull @ right), (told, right, norms[1], pull.T @ left)):
        along = (towards * unit).sum(axis=1, keepdims=True)
        slope += counts.T @ ((towards - along * unit) / norm)
    return float(weight * loss)


def save(path: Path, vectors: Matrix, pieces: list[str]) -> None:
    """The table in eight bits, each row with a scale of its own. Pieces that no passage has keep their first vector."""
    vectors = vectors.copy()
    # Markers of the vocabulary itself ([PAD], [unused…]) say nothing of a text.
    vectors[[place for place, piece in enumerate(pieces) if piece.startswith("[") and piece.endswith("]")]] = 0
    scales = np.abs(vectors).max(axis=1) / 127
    scales[scales == 0] = 1
    vocabulary = np.frombuffer("\n".join(pieces).encode(), dtype=np.uint8)
    quantised = np.rint(vectors / scales[:, None]).astype(np.int8)
    np.savez(path, vectors=quantised, scales=scales.astype(np.float32), vocabulary=vocabulary)


if __name__ == "__main__":
    main()
