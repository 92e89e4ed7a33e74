"""`penstock search`: questions to an index, answered beside whoever writes it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, Final

import click
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.markup import escape

from penstock.cli.filter_expression import parse_filter
from penstock.cli.places import collection_options, json_option, url_of
from penstock.cli.plain import plain
from penstock.cli.providers import Provider, provider_options
from penstock.cli.targets import Target, embedding_for, target_in
from penstock.documents import content_key
from penstock.documents.embedding.provider import Vectors
from penstock.errors import InvalidInput, NotFound, Unavailable
from penstock.pipelines.embedding import Embedding
from penstock.pipelines.leads import LEAD, without_lead
from penstock.pipelines.registry import VECTOR_PATH
from penstock.vector import CollectionName, Filter, Fusion, VectorReader, VectorStore

__all__ = ["Asked", "Question", "find_passages", "search"]

# What of a passage is shown to a person; `--json` gives all of it.
_PASSAGE_CHARACTERS_MAX: Final = 320
# An index is rebuilt now and then, and not twice during one question.
_ATTEMPTS_MAX: Final = 3
_ATTRIBUTES: Final = ("bucket", "key", "seq", "start", "end")


@click.command()
@click.argument("words", nargs=-1, required=True)
@collection_options
@click.option("--count", "-n", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many passages.")
@click.option(
    "--filter", "where", default=None, metavar="EXPR", help="Only passages with these attributes: \"key = 'a.md'\"."
)
@json_option
@provider_options
def search(
    words: tuple[str, ...],
    store: str,
    index_name: str,
    tenant: str,
    model: str | None,
    count: int,
    where: str | None,
    as_json: bool,
    provider: Provider,
) -> None:
    """Find the passages that answer WORDS best, by meaning and by the words themselves."""
    asked = " ".join(words).strip()
    if not asked:
        raise InvalidInput("there is no question", "it has no words", "write what is to be found")
    if _is_broken(asked):
        raise InvalidInput("the question cannot be read", "it is no text in UTF-8", "check the terminal's encoding")
    question = Question(asked, count, parse_filter(where) if where is not None else None)
    whom = Asked(tenant, index_name, model, provider)
    hits = asyncio.run(find_passages(url_of(store), whom, question))
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
            f"[bold]{number}. {escape(plain(hit['key']))}[/]  [dim]{place}  score {hit['score']:.3f}[/]", soft_wrap=True
        )
        if hit["section"]:
            console.print(f"   [italic]{escape(plain(_shortened(hit['section'])))}[/]")
        console.print(f"   {escape(plain(_shortened(hit['text'])))}\n")


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and how many answers are wanted."""

    words: str
    count: int
    where: Filter | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """Which index is asked, and with which model where it is not its own."""

    tenant: str = "default"
    index: str = "default"
    model: str | None = None
    provider: Provider = field(default_factory=Provider)


async def find_passages(url: str, asked: Asked, question: Question) -> list[dict[str, Any]]:
    """The answers of the collection that answers for the index, also while another one takes over."""
    async with await _reader(url) as reader:
        for _ in range(_ATTEMPTS_MAX):
            target = await target_in(reader, asked.tenant, asked.index, asked.model)
            try:
                found = await _ask(reader, target, asked, question)
            except NotFound:
                found = None
            reader.refresh()
            # A collection that was replaced meanwhile may have been emptied under the question.
            if await target_in(reader, asked.tenant, asked.index, asked.model) == target:
                if found is None:
                    raise _no_index(target.name)
                return found
    raise Unavailable(f"index {asked.index} was replaced again and again", "it is being rebuilt", "ask again")


async def _reader(url: str) -> VectorReader:
    try:
        return await VectorStore.open_reader(url, VECTOR_PATH)
    except NotFound as error:
        raise NotFound(
            f"there is no store at {url}", error.what, "`penstock index` makes one; --store names it"
        ) from error


async def _ask(reader: VectorReader, target: Target, asked: Asked, question: Question) -> list[dict[str, Any]]:
    name = target.name
    collection = await reader.collection(name.tenant, name.index, name.model)
    embedding = embedding_for(target, asked.provider)
    query = await _embedded(question.words, name.model, embedding)
    # Words that the model does not know have no direction: then only the text decides.
    vectors = query if np.any(query) else None
    found = await collection.search(
        vectors,
        question.count,
        text=question.words,
        filter=question.where,
        fusion=Fusion.weighted(embedding.profile_of(name.model).vector_weight),
        columns=["text", "attributes"],
    )
    return [_hit(row) for row in found.to_pylist()]


def _hit(row: dict[str, Any]) -> dict[str, Any]:
    """A passage, where it stands and under which title and headings."""
    place = row["attributes"]
    section, text = without_lead(row["text"], place.get(LEAD))
    return {"score": row["score"], **{part: place[part] for part in _ATTRIBUTES}, "section": section, "text": text}


def _no_index(name: CollectionName) -> NotFound:
    why = f"nothing was indexed for tenant {name.tenant} with model {name.model}"
    return NotFound(f"there is no index {name.index}", why, "`penstock index` makes it")


async def _embedded(words: str, model: str, embedding: Embedding) -> npt.NDArray[np.float32]:
    provider = embedding.provider(model)
    try:
        answer = await provider.embed([words], idempotency_key=f"search:{content_key(words, model)}")
    finally:
        await provider.close()
    if not isinstance(answer, Vectors):
        raise Unavailable(f"model {model} did not embed the question", answer.reason, "try again later")
    return answer.rows


def _is_broken(text: str) -> bool:
    """Whether it holds bytes that were no text, as the command line passes them on."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def _shortened(text: str) -> str:
    """On one line, and no longer than a person wants to read."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _PASSAGE_CHARACTERS_MAX else flat[:_PASSAGE_CHARACTERS_MAX].rstrip() + " …"
