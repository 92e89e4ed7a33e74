"""The work that `indexing.py` gives to everybody: the same documents, the same chunk size, the same embedding function.

The documents are the documentation that comes with Python and with the installed packages: its own pages as small
documents, and all of them put together as a few large ones. The embedding is a hash of the text, so that no model's
time is in anybody's figure.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import os
import pydoc_data.topics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = [
    "DIMENSIONS",
    "OVERLAP",
    "TARGET",
    "Figures",
    "change",
    "documents",
    "processor_seconds",
    "processor_seconds_by_process",
    "vector_of",
    "write_documents",
]

TARGET, OVERLAP = 800, 100
DIMENSIONS = 256
LARGE_DOCUMENTS = 4
CHANGED_SHARE = 0.05
# Shorter docstrings are no documents.
PAGE_CHARACTERS_MIN = 600


@dataclass(frozen=True)
class Figures:
    """One contender with one set of documents: seconds for all of them, for all again, and with some changed.

    The processor's seconds are those of the first: on a machine that does other things too, they are the steadier.
    """

    documents: int
    chunks: int
    megabytes: float
    first_seconds: float
    again_seconds: float
    change_seconds: float
    processor_seconds: float


def vector_of(text: str) -> npt.NDArray[np.float32]:
    """What stands for a model: a vector of length one that only this text has."""
    digest = hashlib.shake_256(text.encode("utf-8", "surrogatepass")).digest(DIMENSIONS)
    vector = np.frombuffer(digest, np.uint8).astype(np.float32) - 127.5
    return vector / np.float32(np.linalg.norm(vector))


def processor_seconds() -> float:
    """Of this process and all that it has started, those that ended included."""
    return sum(processor_seconds_by_process().values())


def processor_seconds_by_process() -> dict[str, float]:
    """The same by what a process is: this one, Spark's JVM, the parsers in their limits, Spark's Python workers."""
    table = dict(filter(None, map(status, Path("/proc").glob("[0-9]*"))))
    tree = {os.getpid()}
    while grown := {pid for pid, (parent, _) in table.items() if parent in tree} - tree:
        tree |= grown
    seconds = dict.fromkeys(["driver", "JVM", "parsers", "workers"], 0.0)
    for pid in tree & set(table):
        seconds[kind_of(pid)] += table[pid][1] / os.sysconf("SC_CLK_TCK")
    return seconds


def kind_of(pid: int) -> str:
    if pid == os.getpid():
        return "driver"
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return "workers"  # it has just ended
    if b"documents.parsers.processes import worker" in command:
        return "parsers"
    return "JVM" if b"org.apache.spark" in command else "workers"


def status(entry: Path) -> tuple[int, tuple[int, int]] | None:
    """A process, its parent, and the ticks that it and its ended children have used."""
    try:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None  # it has just ended
    return int(entry.name), (int(fields[1]), sum(map(int, fields[11:15])))


def documents(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def write_documents(place: Path, megabytes: float) -> None:
    """The folders `small` and `large`, each with that much text."""
    kept: list[str] = []
    size = 0
    # In an order that no directory decides, so that a part of them is a fair sample.
    for page in sorted(pages(), key=lambda page: hashlib.sha256(page.encode("utf-8", "replace")).digest()):
        if size > megabytes * 1e6:
            break
        kept.append(page)
        size += len(page)
    share = -(-len(kept) // LARGE_DOCUMENTS)
    large = ["\n\n".join(kept[start : start + share]) for start in range(0, len(kept), share)]
    written(place / "small", kept)
    written(place / "large", large)


def change(folder: Path) -> int:
    """Write a paragraph into the middle of a twentieth of the documents, of one at least; how many that were."""
    chosen = documents(folder)[:: int(1 / CHANGED_SHARE)]
    for number, path in enumerate(chosen):
        page = path.read_text()
        middle = page.find("\n\n", len(page) // 2)
        path.write_text(f"{page[:middle]}\n\nA paragraph that was not here before, number {number}.{page[middle:]}")
    return len(chosen)


def pages() -> Iterator[str]:
    """Prose that every installation has."""
    topics = pydoc_data.topics.topics
    yield from (topics[name] for name in sorted(topics))
    packages = sorted(importlib.metadata.distributions(), key=lambda found: found.name)
    yield from (page for package in packages if (page := package.metadata.get_payload()))  # type: ignore[attr-defined]
    for library in (Path(os.__file__).parent, Path(np.__file__).parent):
        for module in sorted(library.rglob("*.py")):
            if "site-packages" not in module.parts[:-1] or library.name == "numpy":
                yield from docstrings(module)


def docstrings(module: Path) -> list[str]:
    try:
        tree = ast.parse(module.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError, ValueError):
        return []  # the test suites ship files that are broken on purpose
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))
    return [text for text in found if text and len(text) > PAGE_CHARACTERS_MIN]


def written(folder: Path, texts: Iterable[str]) -> None:
    folder.mkdir(parents=True)
    for number, text in enumerate(texts):
        (folder / f"{number:05}.txt").write_text(text, encoding="utf-8", errors="replace")
