"""How good are the answers? Questions with one right page each, asked in every mode, beside `rank_bm25`, in one run.

The indexing job makes the index as `penstock index` does, and a follower answers as `penstock search` does. A page
counts at the place of its best passage. The questions lie in `benchmarks/questions/`, one a line with its page; the
corpora are this project's own documentation and, where the machine has them, packages of Debian: python3.11-doc,
git-doc, postgresql-doc-15. Run it with `python benchmarks/search_quality.py [SET …]`; it takes some minutes.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.cli.places import VECTOR_PATH
from penstock.documents.embedding import EMBEDDED_MODEL, StaticProvider, profile_of
from penstock.vector import CollectionReader, Fusion, VectorStore

try:
    from rank_bm25 import BM25Okapi
except ImportError:
    BM25Okapi = None

HERE = Path(__file__).parent
DEPTH = 200
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Corpus:
    name: str
    folder: Path
    pattern: str
    package: str = ""

    @property
    def questions(self) -> list[tuple[str, str]]:
        lines = (HERE / "questions" / f"{self.name}.tsv").read_text().splitlines()
        return [(question, page) for question, _, page in (line.partition("\t") for line in lines) if page]

    def pages(self) -> list[Path]:
        """Its pages, without indexes, which mention everything."""
        found = sorted(self.folder.rglob(self.pattern))
        return [path for path in found if path.is_file() and not re.search(r"genindex|_static|_sources", str(path))]


CORPORA = (
    Corpus("penstock", HERE.parent / "docs", "*.md"),
    Corpus("python", Path("/usr/share/doc/python3.11/html"), "*.html", "python3.11-doc"),
    Corpus("git", Path("/usr/share/doc/git/html"), "*.html", "git-doc"),
    Corpus("postgresql", Path("/usr/share/doc/postgresql-doc-15/html"), "*.html", "postgresql-doc-15"),
)


def main(wanted: Iterable[str]) -> None:
    chosen = [corpus for corpus in CORPORA if not wanted or corpus.name in wanted]
    print(f"{'':14}{'':28}{'hit@1':>8}{'hit@5':>8}{'MRR':>8}")
    for corpus in chosen:
        if not corpus.folder.is_dir():
            print(f"{corpus.name:14}not here: it comes with Debian's package {corpus.package}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            index(corpus, Path(folder))
            asyncio.run(measure(corpus, Path(folder) / "store"))
    if BM25Okapi is None:
        print("rank_bm25 is not installed (`make bench` installs it): no line of the peer")


def index(corpus: Corpus, folder: Path) -> None:
    """Run the job on a copy of the pages alone."""
    for page in corpus.pages():
        target = folder / "pages" / page.relative_to(corpus.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, target)
    command = [sys.executable, "-m", "penstock.cli", "index", str(folder / "pages"), "--store", str(folder / "store")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def measure(corpus: Corpus, store: Path) -> None:
    questions = corpus.questions
    asked, right = [question for question, _ in questions], [page for _, page in questions]
    vectors = StaticProvider().embed_now(asked).rows
    weight = profile_of(EMBEDDED_MODEL).vector_weight
    async with await VectorStore.open_reader(f"file://{store}", VECTOR_PATH) as reader:
        collection = await reader.collection("default", "default", EMBEDDED_MODEL)
        modes: dict[str, dict[str, Any]] = {
            "words": {"text": asked},
            "vectors": {"vectors": vectors},
            "both, by rank": {"text": asked, "vectors": vectors},
            f"both, by score (default {weight:g})": {
                "text": asked,
                "vectors": vectors,
                "fusion": Fusion.weighted(weight),
            },
        }
        for mode, options in modes.items():
            tell(corpus.name, mode, await rankings(collection, len(asked), options), right)
        if BM25Okapi is not None:
            tell(corpus.name, "rank_bm25, same passages", await peer_rankings(collection, asked), right)


async def rankings(collection: CollectionReader, count: int, options: dict[str, Any]) -> list[list[str]]:
    found = await collection.search(options.pop("vectors", None), DEPTH, columns=["attributes"], **options)
    pages: list[list[str]] = [[] for _ in range(count)]
    for row in found.to_pylist():
        pages[row["query"]].append(row["attributes"]["key"])
    return pages


async def peer_rankings(collection: CollectionReader, asked: list[str]) -> list[list[str]]:
    """The same passages, with their titles and headings, in words as they are: what its examples do."""
    texts, keys = [], []
    async for page in collection.scan(columns=["text", "attributes"]):
        for row in page.to_pylist():
            texts.append(WORD.findall(row["text"].lower()))
            keys.append(row["attributes"]["key"])
    peer = BM25Okapi(texts)
    scores = [peer.get_scores(WORD.findall(question.lower())) for question in asked]
    return [[keys[place] for place in np.argsort(-each, kind="stable")[:DEPTH]] for each in scores]


def tell(corpus: str, mode: str, pages: list[list[str]], right: list[str]) -> None:
    ranks = [place_of(answer, page) for answer, page in zip(pages, right, strict=True)]
    first, five = (np.mean([0 < rank <= limit for rank in ranks]) for limit in (1, 5))
    reciprocal = np.mean([1 / rank if rank else 0.0 for rank in ranks])
    print(f"{corpus:14}{mode:28}{first:8.2f}{five:8.2f}{reciprocal:8.2f}", flush=True)


def place_of(answer: list[str], page: str) -> int:
    """The place of a page among the pages of an answer, from 1; 0 when it is not there."""
    order = list(dict.fromkeys(answer))
    return order.index(page) + 1 if page in order else 0


if __name__ == "__main__":
    main(sys.argv[1:])
