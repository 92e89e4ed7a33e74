"""What the vector benchmark compares with: two sets of vectors, their true neighbours, and how time is taken."""

from __future__ import annotations

import os
import re
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import faiss
import numpy as np

DIMENSIONS = 384
QUERIES = 1000
SINGLES = 200
NEIGHBOURS = 10
RECALL = 0.95
CALL_ROWS = 5000
# Everyone searches with so many.
SEARCH_THREADS = int(os.environ.get("SEARCH_THREADS", "1"))
# The best of so many: other work on the machine only ever slows things down.
ROUNDS = 7

Matrix = Any


@dataclass
class Data:
    """Vectors of length one, queries that are not among them, and the true neighbours of those."""

    name: str
    rows: Matrix
    queries: Matrix
    true: Matrix = None
    # One row in a hundred has this.
    rare: Matrix = None
    true_rare: Matrix = None

    def __post_init__(self) -> None:
        self.true = nearest(self.rows, self.queries)
        self.rare = is_rare(np.arange(len(self.rows)))
        places = np.flatnonzero(self.rare)
        self.true_rare = places[nearest(self.rows[places], self.queries)]


def is_rare(places: Matrix) -> Matrix:
    """Which rows the filter keeps: one in a hundred."""
    return places % 100 == 7


@dataclass
class Rate:
    """How often something was done in a second, and in a second of processor time."""

    wall: float = 0.0
    processor: float = 0.0


@dataclass
class Result:
    """What one engine did."""

    engine: str
    inserts: Rate = field(default_factory=Rate)
    disk_mb: float = 0
    setting: str = ""
    recall: float = 0
    batched: Rate = field(default_factory=Rate)
    single: Rate = field(default_factory=Rate)
    filtered: Rate = field(default_factory=Rate)
    filtered_recall: float = 0
    replaced: Rate = field(default_factory=Rate)
    recall_after: float = 0
    cold_ms: float = 0
    notes: list[str] = field(default_factory=list)


# vectors ------------------------------------------------------------------------------------------


def text_vectors(count: int) -> tuple[Matrix, Matrix]:
    """Passages of the Python library and of what is installed: 256 numbers of the passage, 128 of its beginning."""
    from penstock.documents.embedding.static import StaticProvider

    passages = library_passages(count + QUERIES)
    provider = StaticProvider()
    whole = provider.embed_now(passages).rows
    begin = provider.embed_now([passage[:120] for passage in passages]).rows
    vectors = np.concatenate([whole, begin[:, : DIMENSIONS - whole.shape[1]]], axis=1)
    vectors = unit(vectors[np.abs(vectors).max(axis=1) > 0])
    return vectors[:-QUERIES], vectors[-QUERIES:]


def library_passages(count: int) -> list[str]:
    found: dict[str, None] = {}
    # Each file gives a few, so that no package dominates; more a file until there are enough.
    for limit in (20, 80, 10_000):
        for path in library_files():
            pieces = re.split(r"\n\s*\n", path.read_text(errors="ignore"))
            merged = [" ".join(pieces[n : n + 3])[:1200] for n in range(0, len(pieces), 3)]
            found.update(dict.fromkeys(piece for piece in merged[:limit] if len(piece) > 200))
            if len(found) >= 2 * count:
                break
        if len(found) >= count:
            break
    passages = list(found)
    np.random.default_rng(0).shuffle(passages)
    if len(passages) < count:
        raise SystemExit(f"this machine has {len(passages):,} passages of text, and {count:,} are needed: use --quick")
    return passages[:count]


def library_files() -> Iterator[Path]:
    for root in ("stdlib", "purelib"):
        for path in sorted(Path(sysconfig.get_paths()[root]).rglob("*")):
            if path.suffix in (".py", ".md", ".rst", ".txt", ".pyi") and path.is_file():
                yield path


def clustered_vectors(count: int) -> tuple[Matrix, Matrix]:
    """Two thousand clusters of different weight and width, each in a few directions of its own."""
    random = np.random.default_rng(1)
    clusters, inner = 2000, 24
    centres = unit(random.standard_normal((clusters, DIMENSIONS)))
    axes = random.standard_normal((64, inner, DIMENSIONS)) / DIMENSIONS**0.5
    weights = random.pareto(1.5, clusters) + 0.2
    chosen = random.choice(clusters, count + QUERIES, p=weights / weights.sum())
    width = random.uniform(0.3, 0.9, clusters)
    vectors = np.empty((len(chosen), DIMENSIONS), np.float32)
    # In parts: every row has its own directions.
    for first in range(0, len(chosen), 5000):
        part = chosen[first : first + 5000]
        inside = np.einsum("ni,nid->nd", random.standard_normal((len(part), inner)), axes[part % 64])
        noise = 0.01 * random.standard_normal(inside.shape)
        vectors[first : first + 5000] = unit(centres[part] + width[part, None] * inside / inner**0.5 + noise)
    return vectors[:-QUERIES], vectors[-QUERIES:]


def unit(vectors: Matrix) -> Matrix:
    return np.ascontiguousarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def replacement(data: Data) -> tuple[Matrix, Matrix, Matrix]:
    """A tenth of the rows with other vectors from the same set, and the true neighbours after that."""
    random = np.random.default_rng(3)
    places = random.choice(len(data.rows), len(data.rows) // 10, replace=False)
    mixed = 0.7 * data.rows[places] + 0.3 * data.rows[random.permutation(len(data.rows))[: len(places)]]
    rows = data.rows.copy()
    rows[places] = unit(mixed)
    return places, rows[places], nearest(rows, data.queries)


# measuring ----------------------------------------------------------------------------------------


def nearest(rows: Matrix, queries: Matrix) -> Matrix:
    with threads(os.cpu_count() or 1):
        return faiss.knn(queries, np.ascontiguousarray(rows), NEIGHBOURS, metric=faiss.METRIC_INNER_PRODUCT)[1]


def recall_of(found: Matrix, true: Matrix) -> float:
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found, true, strict=True)]))


@contextmanager
def threads(count: int) -> Iterator[None]:
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(SEARCH_THREADS)


@contextmanager
def timed(rate: Rate, count: int) -> Iterator[None]:
    """Take the time of doing `count` things, and keep it if it is the best so far."""
    began, used = time.perf_counter(), time.process_time()
    yield
    rate.wall = max(rate.wall, count / (time.perf_counter() - began))
    rate.processor = max(rate.processor, count / max(time.process_time() - used, 1e-9))


def best(work: Callable[[], Any], count: int) -> tuple[Rate, Any]:
    """The best rate of some rounds, and the last answer."""
    rate, answer = Rate(), None
    for _ in range(ROUNDS):
        with timed(rate, count):
            answer = work()
    return rate, answer


def ladder(search: Callable[[int], Matrix], settings: list[int], true: Matrix) -> tuple[int, float]:
    """The first setting that reaches the recall, or the last; and its recall."""
    for setting in settings:
        recall = recall_of(search(setting), true)
        if recall >= RECALL:
            break
    return setting, recall


def disk_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
