"""What the teacher makes of the passages: vectors of all-MiniLM-L6-v2 for their texts and for their headings.

`python -m tools.embedded_model.teacher PASSAGES.jsonl OUT_FOLDER [--threads 2]` needs `penstock[minilm]`. Passages come
in a fixed random order, a block a file, so that a run that is stopped goes on, and what is there can be learnt from.
"""

from __future__ import annotations

import argparse
import json
import random  # noqa: TID251 - seeded: the recipe gives the same passages each time
from pathlib import Path
from typing import Final

import numpy as np

from penstock.documents.embedding.minilm import MiniLmEncoder, find_weights

_BLOCK: Final = 1024
_SEED: Final = 20261117
# Of a passage, what the teacher reads: its time grows faster than the length, and a table learns from many short ones.
WORDS_MAX: Final = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("passages", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--blocks", type=int, help="stop after so many, to go on later")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    encoder = MiniLmEncoder(find_weights(), asked.threads)
    passages = shuffled(asked.passages)
    starts = range(0, len(passages), _BLOCK)
    for start in [start for start in starts if not _target(asked.out, start).exists()][: asked.blocks]:
        target = _target(asked.out, start)
        block = passages[start : start + _BLOCK]
        texts, _ = encoder.encode([short(passage["text"]) for passage in block])
        queries, _ = encoder.encode([query_of(passage) for passage in block])
        partial = target.with_suffix(".part.npz")
        np.savez(partial, texts=texts.astype(np.float16), queries=queries.astype(np.float16))
        partial.rename(target)
        print(f"{start + len(block):,} of {len(passages):,}", flush=True)


def _target(folder: Path, start: int) -> Path:
    return folder / f"{start:07}.npz"


def shuffled(path: Path) -> list[dict[str, str]]:
    """The passages in the order that the teacher meets them."""
    passages = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    random.Random(_SEED).shuffle(passages)
    return passages


def short(text: str) -> str:
    return " ".join(text.split(maxsplit=WORDS_MAX)[:WORDS_MAX])


def query_of(passage: dict[str, str]) -> str:
    """What somebody who looks for a passage might ask: its heading, within its page."""
    title, heading = passage["title"], passage["heading"]
    return heading if not title or heading == title else f"{heading} {title}"


if __name__ == "__main__":
    main()
