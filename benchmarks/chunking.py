"""Chunking at 800 tokens with 100 of overlap, exact cl100k counts, beside the libraries people use, in one run.

Every peer counts with the same tokenizer (splintr, the fastest here), except where it brings its own cl100k. The text
is the documentation that comes with Python and with the installed packages. One thread, processor time, the best of
three rounds; a peer too slow for all of the text gets one round with a part of it. Run it with
`python benchmarks/chunking.py`; it takes about a minute.
"""

from __future__ import annotations

import ast
import importlib.metadata
import os
import pydoc_data.topics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _usage import check_words

# Set before the tokenizer loads: this compares one core with one core.
os.environ["RAYON_NUM_THREADS"] = "1"

import chonkie
import chonkie.tokenizer
import numpy
import semchunk
import splintr
from langchain_text_splitters import RecursiveCharacterTextSplitter
from semantic_text_splitter import TextSplitter

from penstock.documents.chunker import Chunker, ChunkingConfig

TARGET, OVERLAP = 800, 100
GOAL_MB_PER_SECOND = 30
ROUNDS = 3
# A peer that would need longer than this for one round gets less text.
ROUND_SECONDS = 0.5

TOKENIZER = splintr.Tokenizer.from_pretrained("cl100k_base")


def count(text: str) -> int:
    return len(TOKENIZER.encode_flat(text)) // 4


class ChonkieTokenizer(chonkie.tokenizer.Tokenizer):
    """splintr in the shape that chonkie asks for."""

    def __repr__(self) -> str:
        return "cl100k"

    def encode(self, text: str) -> list[int]:
        return TOKENIZER.encode_ordinary(text)

    def decode(self, tokens: Sequence[int]) -> str:
        return TOKENIZER.decode_lossy(tokens)

    def decode_batch(self, token_sequences: Sequence[Sequence[int]]) -> list[str]:
        return TOKENIZER.decode_batch_lossy(token_sequences)

    def tokenize(self, text: str) -> list[int]:
        return self.encode(text)

    def count_tokens(self, text: str) -> int:
        return count(text)


@dataclass
class Contender:
    name: str
    chunk: Callable[[str], Sequence[Any]]
    exact: bool = True


def contenders() -> list[Contender]:
    ours, estimated = Chunker(), Chunker(ChunkingConfig(counter="estimate"))
    langchain = RecursiveCharacterTextSplitter(chunk_size=TARGET, chunk_overlap=OVERLAP, length_function=count)
    window = chonkie.TokenChunker(tokenizer=ChonkieTokenizer(), chunk_size=TARGET, chunk_overlap=OVERLAP)
    recursive = chonkie.RecursiveChunker(tokenizer=ChonkieTokenizer(), chunk_size=TARGET)
    sentence = chonkie.SentenceChunker(tokenizer=ChonkieTokenizer(), chunk_size=TARGET, chunk_overlap=OVERLAP)
    semantic = semchunk.chunkerify(count, TARGET)
    callback = TextSplitter.from_callback(count, TARGET, overlap=OVERLAP)
    tiktoken = TextSplitter.from_tiktoken_model("gpt-4", TARGET, overlap=OVERLAP)
    return [
        Contender("penstock", lambda text: ours.chunk(text.encode())),
        Contender("penstock, estimated tokens", lambda text: estimated.chunk(text.encode()), exact=False),
        Contender("langchain RecursiveCharacterTextSplitter", langchain.split_text),
        Contender("chonkie TokenChunker", window),
        Contender("chonkie RecursiveChunker (no overlap)", recursive),
        Contender("chonkie SentenceChunker", sentence),
        Contender("semchunk", lambda text: semantic(text, overlap=OVERLAP)),
        Contender("semantic-text-splitter, callback", callback.chunks),
        Contender("semantic-text-splitter, its own tiktoken", tiktoken.chunks),
    ]


def corpus() -> str:
    """Prose that every installation has: Python's topics, the packages' own pages, and docstrings."""
    pages = [pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics)]
    packages = sorted(importlib.metadata.distributions(), key=lambda found: found.name)
    pages += [package.metadata.get_payload() or "" for package in packages]  # type: ignore[attr-defined]
    for library in (Path(os.__file__).parent, Path(numpy.__file__).parent):
        for module in sorted(library.rglob("*.py")):
            if "site-packages" not in module.parts[:-1] or library.name == "numpy":
                pages += docstrings(module)
    return "\n\n".join(page for page in pages if page)


def docstrings(module: Path) -> list[str]:
    try:
        tree = ast.parse(module.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError, ValueError):
        return []  # the test suites ship files that are broken on purpose
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))
    return [text for text in found if text and len(text) > 300]


def measure(contender: Contender, text: str) -> tuple[float, int, float]:
    """Megabytes a second, how many chunks, and their mean tokens, over as much text as the time allows."""
    sample = text[: 128 << 10]
    contender.chunk(sample)
    started = time.process_time()
    contender.chunk(sample)
    pace = len(sample) / (time.process_time() - started)
    part = text[: max(len(sample), min(len(text), int(pace * ROUND_SECONDS)))]
    best = float("inf")
    for _ in range(ROUNDS if len(part) == len(text) else 1):
        started = time.process_time()
        chunks = contender.chunk(part)
        best = min(best, time.process_time() - started)
    texts = [chunk if isinstance(chunk, str) else chunk.text for chunk in chunks]
    return len(part) / 1e6 / best, len(texts), sum(map(count, texts)) / len(texts)


def main() -> None:
    text = corpus()
    print(f"{len(text) / 1e6:.1f} MB of documentation, {TARGET} tokens, {OVERLAP} overlap, exact cl100k, one core\n")
    print(f"{'':44}{'MB/s':>8}{'chunks':>9}{'tokens':>8}{'ours is':>10}")
    rates: dict[str, float] = {}
    field = contenders()
    field[0].chunk(text[:10_000])  # the vocabulary loads once
    for contender in field:
        rate, chunks, tokens = measure(contender, text)
        rates[contender.name] = rate
        ratio = f"{rates['penstock'] / rate:.1f}x" if contender.exact else "-"
        print(f"{contender.name:44}{rate:8.1f}{chunks:9d}{tokens:8.0f}{ratio:>10}", flush=True)
    fastest = max(rate for name, rate in rates.items() if not name.startswith("penstock"))
    met = rates["penstock"] >= GOAL_MB_PER_SECOND and rates["penstock"] > fastest
    print(f"\ngoal: {GOAL_MB_PER_SECOND} MB/s a core and faster than each exact peer: {'met' if met else 'MISSED'}")


if __name__ == "__main__":
    check_words(__doc__)
    main()
