"""`penstock search`: questions to an index, answered beside whoever writes it."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.markup import escape

from penstock.cli.places import collection_options, url_of
from penstock.documents.embedding.provider import Vectors
from penstock.errors import Unavailable
from penstock.pipelines.embedding import Embedding
from penstock.pipelines.registry import VECTOR_PATH
from penstock.vector import CollectionName, VectorStore

__all__ = ["search"]

# What of a passage is shown to a person; `--json` gives all of it.
_PASSAGE_CHARACTERS_MAX: Final = 320


@click.command()
@click.argument("words", nargs=-1, required=True)
@collection_options
@click.option("--count", "-n", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many passages.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--embedding-url", default=None, metavar="URL", help="An OpenAI-compatible endpoint for the model.")
@click.option("--embedding-key", default=None, envvar="PENSTOCK_EMBEDDING_KEY", help="Its key.")
def search(
    words: tuple[str, ...],
    store: str,
    index_name: str,
    tenant: str,
    model: str,
    count: int,
    as_json: bool,
    embedding_url: str | None,
    embedding_key: str | None,
) -> None:
    """Find the passages that answer WORDS best, by meaning and by the words themselves."""
    name = CollectionName(tenant, index_name, model)
    embedding = Embedding(embedding_url, embedding_key)
    hits = asyncio.run(_hits(url_of(store), name, " ".join(words), count, embedding))
    if as_json:
        for hit in hits:
            click.echo(json.dumps(hit, ensure_ascii=False))
        return
    console = Console(highlight=False)
    if not hits:
        console.print("Nothing was found.")
    for number, hit in enumerate(hits, 1):
        where = f"bytes {hit['start']:,}–{hit['end']:,}"
        console.print(f"[bold]{number}. {escape(hit['key'])}[/]  [dim]{where}  score {hit['score']:.3f}[/]")
        console.print(f"   {escape(_shortened(hit['text']))}\n")


async def _hits(url: str, name: CollectionName, words: str, count: int, embedding: Embedding) -> list[dict[str, Any]]:
    query = await _embedded(words, name.model, embedding)
    async with await VectorStore.open_reader(url, VECTOR_PATH) as reader:
        collection = await reader.collection(name.tenant, name.index, name.model)
        vectors = query if np.any(query) else None
        found = await collection.search(vectors, count, text=words, columns=["text", "attributes"])
    return [
        {"score": row["score"], **{part: row["attributes"][part] for part in ("bucket", "key", "start", "end")}}
        | {"text": row["text"]}
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
