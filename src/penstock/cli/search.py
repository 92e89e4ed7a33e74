"""`penstock search`: questions to an index, answered beside whoever writes it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any, Final

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.markup import escape

from penstock.cli.filter_expression import parse_filter
from penstock.cli.places import collection_options, embedding_options, json_option, url_of
from penstock.documents.embedding.provider import Vectors
from penstock.errors import Unavailable
from penstock.pipelines.embedding import Embedding
from penstock.pipelines.registry import VECTOR_PATH
from penstock.vector import CollectionName, Filter, VectorStore

__all__ = ["search"]

# What of a passage is shown to a person; `--json` gives all of it.
_PASSAGE_CHARACTERS_MAX: Final = 320
_ATTRIBUTES: Final = ("bucket", "key", "seq", "start", "end")


@click.command()
@click.argument("words", nargs=-1, required=True)
@collection_options
@click.option("--count", "-n", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many passages.")
@click.option(
    "--filter", "where", default=None, metavar="EXPR", help="Only passages with these attributes: \"key = 'a.md'\"."
)
@json_option
@embedding_options
def search(
    words: tuple[str, ...],
    store: str,
    index_name: str,
    tenant: str,
    model: str,
    count: int,
    where: str | None,
    as_json: bool,
    embedding_url: str | None,
    embedding_key: str | None,
) -> None:
    """Find the passages that answer WORDS best, by meaning and by the words themselves."""
    name = CollectionName(tenant, index_name, model)
    embedding = Embedding(embedding_url, embedding_key)
    question = _Question(" ".join(words), count, parse_filter(where) if where is not None else None)
    hits = asyncio.run(_hits(url_of(store), name, question, embedding))
    if as_json:
        for hit in hits:
            click.echo(json.dumps(hit, ensure_ascii=False))
        return
    console = Console(highlight=False)
    if not hits:
        console.print("Nothing was found.")
    for number, hit in enumerate(hits, 1):
        place = f"bytes {hit['start']:,}–{hit['end']:,}"
        console.print(
            f"[bold]{number}. {escape(hit['key'])}[/]  [dim]{place}  score {hit['score']:.3f}[/]", soft_wrap=True
        )
        console.print(f"   {escape(_shortened(hit['text']))}\n")


@dataclass(frozen=True, slots=True)
class _Question:
    words: str
    count: int
    where: Filter | None = None


async def _hits(url: str, name: CollectionName, question: _Question, embedding: Embedding) -> list[dict[str, Any]]:
    query = await _embedded(question.words, name.model, embedding)
    async with await VectorStore.open_reader(url, VECTOR_PATH) as reader:
        collection = await reader.collection(name.tenant, name.index, name.model)
        # Words that the model does not know have no direction: then only the text decides.
        vectors = query if np.any(query) else None
        found = await collection.search(
            vectors, question.count, text=question.words, filter=question.where, columns=["text", "attributes"]
        )
    return [
        {"score": row["score"], **{part: row["attributes"][part] for part in _ATTRIBUTES}, "text": row["text"]}
        for row in found.to_pylist()
    ]


async def _embedded(words: str, model: str, embedding: Embedding) -> npt.NDArray[np.float32]:
    provider = embedding.provider(model)
    try:
        answer = await provider.embed([words], idempotency_key=f"search:{words}")
    finally:
        await provider.close()
    if not isinstance(answer, Vectors):
        raise Unavailable(f"model {model} did not embed the question", answer.reason, "try again later")
    return answer.rows


def _shortened(text: str) -> str:
    """On one line, and no longer than a person wants to read."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _PASSAGE_CHARACTERS_MAX else flat[:_PASSAGE_CHARACTERS_MAX].rstrip() + " …"
