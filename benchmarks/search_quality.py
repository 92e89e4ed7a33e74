"""How good are the answers? Questions with a right page each, asked in every mode, beside `rank_bm25`, in one run.

`penstock index --engine local` makes the index, and a follower answers as `penstock search` does. A page
counts at the place of its best passage. The questions lie in `benchmarks/questions/`, one a line with the page that
answers it, and others that answer it as well; the corpora are this project's own documentation and, where the machine
has them, packages of Debian: python3.11-doc, git-doc, postgresql-doc-15, sqlite3-doc, python-django-doc, apache2-doc,
python-scrapy-doc, rsyslog-doc, borgbackup-doc, krb5-doc and mypy-doc. How words are ranked was chosen on the first four,
and how words and vectors are joined on the first ten; the questions to Kerberos' and mypy's pages were written before
that. None of these corpora is among the texts that the embedded model learned from. Run it with
`python benchmarks/search_quality.py [SET …] [--model NAME]`; it takes some minutes. Where the packages are not
installed, unpack them (`apt-get download python3.11-doc && dpkg -x python3.11-doc_*.deb unpacked`) and
say where: `--root unpacked`.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock.cli.settings.options import VECTOR_PATH
from penstock.documents.embedding import EMBEDDED_MODEL, LOCAL_MODELS, Vectors, local_provider, profile_of
from penstock.vector import CollectionReader, Fusion, VectorStore

try:
    from rank_bm25 import BM25Okapi
except ImportError:
    BM25Okapi = None

HERE = Path(__file__).parent
DEPTH = 200
WORD = re.compile(r"\w+")
INDEXES = re.compile(r"genindex|_static|_sources|_crossref|keyword_index|sitemap|_modules|py-modindex")


@dataclass(frozen=True)
class Corpus:
    name: str
    folder: Path
    pattern: str
    package: str = ""
    # Pages that mention everything, or say it all again: release notes, one page with all others in it.
    without: str = "(?!)"

    @property
    def questions(self) -> list[tuple[str, list[str]]]:
        """Each with the pages that are right."""
        lines = (HERE / "questions" / f"{self.name}.tsv").read_text().splitlines()
        return [(question, pages) for question, *pages in (line.split("\t") for line in lines) if pages]

    def beneath(self, root: Path) -> Corpus:
        """The same where packages are unpacked; this project's own pages are where they are."""
        return replace(self, folder=root / self.folder.relative_to("/")) if self.package else self

    def pages(self) -> list[Path]:
        """Its pages, without indexes and release notes, which mention everything."""
        found = [path for path in sorted(self.folder.rglob(self.pattern)) if path.is_file()]
        without = re.compile(f"{INDEXES.pattern}|{self.without}")
        return [path for path in found if not without.search(f"/{path.relative_to(self.folder)}")]


CORPORA = (
    Corpus("penstock", HERE.parent / "docs", "*.md"),
    Corpus("python", Path("/usr/share/doc/python3.11/html"), "*.html", "python3.11-doc"),
    Corpus("git", Path("/usr/share/doc/git/html"), "*.html", "git-doc"),
    Corpus("postgresql", Path("/usr/share/doc/postgresql-doc-15/html"), "*.html", "postgresql-doc-15"),
    Corpus("sqlite", Path("/usr/share/doc/sqlite3"), "*.html", "sqlite3-doc"),
    Corpus(
        "django", Path("/usr/share/doc/python-django-doc/html"), "*.html", "python-django-doc", "/releases/|/internals/"
    ),
    Corpus("apache", Path("/usr/share/doc/apache2-doc/manual/en"), "*.html", "apache2-doc"),
    Corpus(
        "scrapy", Path("/usr/share/doc/python-scrapy-doc/html"), "*.html", "python-scrapy-doc", "/(news|search).html"
    ),
    Corpus("rsyslog", Path("/usr/share/doc/rsyslog-doc/html"), "*.html", "rsyslog-doc", "/search.html"),
    Corpus("borg", Path("/usr/share/doc/borgbackup/html"), "*.html", "borgbackup-doc", "/(book|changes|search).html"),
    Corpus("krb5", Path("/usr/share/doc/krb5-doc"), "*.html", "krb5-doc", "/appdev/refs/|/search.html"),
    Corpus("mypy", Path("/usr/share/doc/mypy/html"), "*.html", "mypy-doc", "/search.html"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", choices=[[], *(corpus.name for corpus in CORPORA)], help="instead of all")
    parser.add_argument("--root", type=Path, default=Path("/"), help="folder that Debian's packages are unpacked in")
    parser.add_argument("--model", choices=sorted(LOCAL_MODELS), default=EMBEDDED_MODEL)
    asked = parser.parse_args()
    chosen = (corpus.beneath(asked.root) for corpus in CORPORA if not asked.sets or corpus.name in asked.sets)
    compare(chosen, asked.model)


def compare(chosen: Iterable[Corpus], model: str) -> None:
    print(f"{'':14}{'':28}{'hit@1':>8}{'hit@5':>8}{'MRR':>8}")
    for corpus in chosen:
        if not corpus.folder.is_dir():
            print(f"{corpus.name:14}not here: it comes with Debian's package {corpus.package}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            index(corpus, Path(folder), model)
            asyncio.run(measure(corpus, Path(folder) / "store", model))
    if BM25Okapi is None:
        print("rank_bm25 is not installed (`make bench` installs it): no line of the peer")


def index(corpus: Corpus, folder: Path, model: str) -> None:
    """Run the job on a copy of the pages alone."""
    for page in corpus.pages():
        target = folder / "pages" / page.relative_to(corpus.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, target)
    options = ["--store", str(folder / "store"), "--engine", "local", "--model", model]
    command = [sys.executable, "-m", "penstock.cli", "index", str(folder / "pages"), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def measure(corpus: Corpus, store: Path, model: str) -> None:
    questions = corpus.questions
    asked, right = [question for question, _ in questions], [pages for _, pages in questions]
    answer = await local_provider(model).embed(asked, idempotency_key="questions")
    assert isinstance(answer, Vectors)
    vectors, weight = answer.rows, profile_of(model).vector_weight
    async with await VectorStore.open_reader(f"file://{store}", VECTOR_PATH) as reader:
        collection = await reader.collection("default", "default", model)
        modes: dict[str, dict[str, Any]] = {
            "words": {"text": asked, "group": "key"},
            "vectors": {"vectors": vectors},
            "both, by rank": {"text": asked, "vectors": vectors},
            f"both, by score (default {weight:g})": {
                "text": asked,
                "vectors": vectors,
                "fusion": Fusion.weighted(weight),
                "group": "key",
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


def tell(corpus: str, mode: str, pages: list[list[str]], right: list[list[str]]) -> None:
    ranks = [place_of(answer, any_of) for answer, any_of in zip(pages, right, strict=True)]
    first, five = (np.mean([0 < rank <= limit for rank in ranks]) for limit in (1, 5))
    reciprocal = np.mean([1 / rank if rank else 0.0 for rank in ranks])
    print(f"{corpus:14}{mode:28}{first:8.2f}{five:8.2f}{reciprocal:8.2f}", flush=True)


def place_of(answer: list[str], any_of: list[str]) -> int:
    """The place of the first right page among the pages of an answer, from 1; 0 when none is there."""
    order = list(dict.fromkeys(answer))
    return min((order.index(page) + 1 for page in any_of if page in order), default=0)


if __name__ == "__main__":
    main()
