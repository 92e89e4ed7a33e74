"""How good are the answers? Questions with a right page each, asked in every mode, beside `rank_bm25`, in one run.

`penstock index --engine local` makes the index, and a follower answers as `penstock search` does. A page
counts at the place of its best passage. The questions lie in `benchmarks/questions/`, one a line with the page that
answers it, and others that answer it as well; the corpora are this project's own documentation and, where the machine
has them, packages of Debian: python3.11-doc, git-doc, postgresql-doc-15, sqlite3-doc, python-django-doc, apache2-doc,
python-scrapy-doc, rsyslog-doc, borgbackup-doc, krb5-doc, mypy-doc, python-celery-doc and postfix-doc. How words are
ranked was chosen on the first four, and how words and vectors are joined on the first ten; the questions to Kerberos' and
mypy's pages were written before that, and those to Celery's and Postfix's last. The set `sections` is
made by the program: 300 sections of five of these projects, each asked for by its heading, which is taken out of it.
None of these corpora is among the texts that the embedded model learned from. Behind hit@1 stands the interval in which
it lies for 95 of 100 draws of as many questions (bootstrap), and below the modes how far the default is from words alone,
with that interval. Run it with `python benchmarks/search_quality.py [SET …] [--model NAME]`; it takes some minutes. Where
the packages are not installed, unpack them (`apt-get download python3.11-doc && dpkg -x python3.11-doc_*.deb unpacked`) and
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
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from _section_questions import draw_sections, write_sections
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
SECTIONS_A_PROJECT = 60
DRAWS = 10_000
INDEXES = re.compile(r"genindex|_static|_sources|_crossref|keyword_index|sitemap|_modules|py-modindex")


# A question, and the pages that are right.
Asked: TypeAlias = tuple[str, list[str]]
# The place of the first right page for each question, from 1; 0 where none was found.
Places: TypeAlias = npt.NDArray[np.int_]


@dataclass(frozen=True)
class Corpus:
    name: str
    folder: Path
    pattern: str
    package: str = ""
    # Pages that mention everything, or say it all again: release notes, one page with all others in it.
    without: str = "(?!)"

    @property
    def questions(self) -> list[Asked]:
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
    Corpus(
        "celery",
        Path("/usr/share/doc/python-celery-doc/html"),
        "*.html",
        "python-celery-doc",
        "/history/|/(search|glossary|changelog).html",
    ),
    Corpus("postfix", Path("/usr/share/doc/postfix/html"), "*.html", "postfix-doc", "/postconf.5.html"),
)


# Of whose pages sections are found by their headings.
SECTIONS = "sections"
PROJECTS = ("scrapy", "krb5", "mypy", "celery", "postfix")


def main() -> None:
    names = [*(corpus.name for corpus in CORPORA), SECTIONS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", choices=[[], *names], help="instead of all")
    parser.add_argument("--root", type=Path, default=Path("/"), help="folder that Debian's packages are unpacked in")
    parser.add_argument("--model", choices=sorted(LOCAL_MODELS), default=EMBEDDED_MODEL)
    asked = parser.parse_args()
    corpora = [corpus.beneath(asked.root) for corpus in CORPORA]
    print(f"{'':12}{'':28}{'hit@1':>7}{'95 %':>13}{'hit@5':>7}{'MRR':>7}")
    for corpus in corpora:
        if not asked.sets or corpus.name in asked.sets:
            compare(corpus, asked.model)
    if not asked.sets or SECTIONS in asked.sets:
        compare_sections([corpus for corpus in corpora if corpus.name in PROJECTS], asked.model)
    if BM25Okapi is None:
        print("rank_bm25 is not installed (`make bench` installs it): no line of the peer")


def compare(corpus: Corpus, model: str) -> None:
    if is_missing(corpus):
        return
    with tempfile.TemporaryDirectory() as folder:
        copy_pages(corpus, Path(folder) / "pages")
        index(Path(folder), model)
        asyncio.run(measure(corpus.name, corpus.questions, Path(folder) / "store", model))


def compare_sections(corpora: Iterable[Corpus], model: str) -> None:
    """All sections in one index, asked for by their headings."""
    sections = [
        section
        for corpus in corpora
        if not is_missing(corpus)
        for section in draw_sections(corpus.pages(), SECTIONS_A_PROJECT)
    ]
    with tempfile.TemporaryDirectory() as folder:
        questions = write_sections(sections, Path(folder) / "pages")
        index(Path(folder), model)
        asyncio.run(measure(SECTIONS, questions, Path(folder) / "store", model))


def is_missing(corpus: Corpus) -> bool:
    if not corpus.folder.is_dir():
        print(f"{corpus.name:12}not here: it comes with Debian's package {corpus.package}")
    return not corpus.folder.is_dir()


def copy_pages(corpus: Corpus, folder: Path) -> None:
    for page in corpus.pages():
        target = folder / page.relative_to(corpus.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, target)


def index(folder: Path, model: str) -> None:
    """Run the job on a folder of pages."""
    options = ["--store", str(folder / "store"), "--engine", "local", "--model", model]
    command = [sys.executable, "-m", "penstock.cli", "index", str(folder / "pages"), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def measure(name: str, questions: list[Asked], store: Path, model: str) -> None:
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
        ranks = {
            mode: places(await rankings(collection, len(asked), options), right) for mode, options in modes.items()
        }
        if BM25Okapi is not None:
            ranks["rank_bm25, same passages"] = places(await peer_rankings(collection, asked), right)
    for mode, found in ranks.items():
        tell(name, mode, found)
    words, *_, default = (ranks[mode] == 1 for mode in modes)
    gained = default.astype(float) - words
    print(f"{name:12}{'default above words alone':28}{gained.mean():+7.2f}{interval(gained):>13}", flush=True)


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


def places(answers: list[list[str]], right: list[list[str]]) -> Places:
    return np.array([place_of(answer, any_of) for answer, any_of in zip(answers, right, strict=True)])


def tell(name: str, mode: str, ranks: Places) -> None:
    first, five = ranks == 1, (ranks > 0) & (ranks <= 5)
    reciprocal = np.where(ranks > 0, 1 / np.maximum(ranks, 1), 0).mean()
    shown = f"{first.mean():7.2f}{interval(first):>13}{five.mean():7.2f}{reciprocal:7.2f}"
    print(f"{name:12}{mode:28}{shown}", flush=True)


def interval(values: npt.NDArray[Any]) -> str:
    """Where the mean lies for 95 of 100 draws of as many questions from these."""
    drawn = np.random.default_rng(len(values)).integers(0, len(values), (DRAWS, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975])
    return f"{low:.2f}–{high:.2f}"


def place_of(answer: list[str], any_of: list[str]) -> int:
    """The place of the first right page among the pages of an answer, from 1; 0 when none is there."""
    order = list(dict.fromkeys(answer))
    return min((order.index(page) + 1 for page in any_of if page in order), default=0)


if __name__ == "__main__":
    main()
