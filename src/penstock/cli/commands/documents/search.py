"""`penstock search`: questions to an index, answered beside whoever writes it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli.settings.numbers import FiniteRange
from penstock.cli.settings.options import collection_options, json_option, provider_options, settings_option
from penstock.cli.terminal.snippets import snippet
from penstock.cli.terminal.terminal_text import terminal_text
from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.cli.settings.configuration import Settings
    from penstock.indexing import Provider, RerankEndpoint

__all__ = ["MODES", "search"]

MODES: Final = ("hybrid", "text", "vector")

# What of a passage is shown to a person; `--json` gives all of it.
_PASSAGE_CHARACTERS_MAX: Final = 320
_METADATA_CHARACTERS_MAX: Final = 200
_INDENT: Final = "   "
_WIDTH_MIN: Final = 20


@click.command()
@click.argument("words", nargs=-1, required=True)
@collection_options
@click.option(
    "--count", "-n", type=click.IntRange(1, 1000), default=5, show_default=True, help="Maximum number of passages."
)
@click.option("--filter", "where", default=None, metavar="EXPR", help="Filter on attributes, such as \"key = 'a.md'\".")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="hybrid",
    show_default=True,
    help="Ranking: by words, by vector, or by both.",
)
@click.option(
    "--min-score",
    type=FiniteRange(),
    default=None,
    metavar="SCORE",
    help="Minimum score of a passage, on the scale of --mode.",
)
@click.option(
    "--context",
    type=click.IntRange(0, 20),
    default=0,
    metavar="CHUNKS",
    help="Chunks of text to show before and after each passage.",
)
@click.option(
    "--per-document",
    type=click.IntRange(1, 1000),
    default=None,
    metavar="COUNT",
    help="Maximum number of passages from one document.",
)
@click.option("--by-document", is_flag=True, help="Group the passages by document.")
@click.option(
    "--facet",
    "facets",
    multiple=True,
    metavar="ATTRIBUTE",
    help="Attribute whose values to count among the best 1,000 passages. Repeatable.",
)
@click.option("--rerank", default=None, metavar="URL", help="Reranking endpoint that orders the first 50 passages.")
@click.option("--rerank-model", default="", metavar="NAME", help="Model of the reranking endpoint.")
@click.option(
    "--rerank-key-file",
    default=None,
    metavar="FILE",
    envvar="PENSTOCK_RERANK_KEY_FILE",
    help="File with the key of the reranking endpoint.",
)
@json_option
@provider_options
@settings_option
def search(
    words: tuple[str, ...],
    store: str,
    index_name: str,
    tenant: str,
    model: str | None,
    count: int,
    where: str | None,
    mode: str,
    min_score: float | None,
    context: int,
    per_document: int | None,
    by_document: bool,
    facets: tuple[str, ...],
    rerank: str | None,
    rerank_model: str,
    rerank_key_file: str | None,
    as_json: bool,
    provider: Provider,
    settings: Settings,
) -> None:
    """Find the passages that best answer a question.

    Ranks by meaning and by words, unless --mode says otherwise. Scores are cosine similarities with
    --mode vector, BM25 with --mode text, and a share of the best possible score with both.
    """
    asked = " ".join(words).strip()
    if _is_broken(asked):
        raise InvalidInput("the query cannot be read", "it is not UTF-8 text", "check the terminal's encoding")
    import asyncio

    from penstock.cli.settings.wiring import Wiring
    from penstock.indexing import Asked, Question, find_answer, parse_filter, url_of
    from penstock.indexing import by_document as grouped

    chosen = parse_filter(where) if where is not None else None
    judge = _judge(rerank, rerank_model, rerank_key_file)
    question = Question(asked, count, chosen, mode, min_score, context, per_document, judge, facets)
    whom = Asked(tenant, index_name, model, provider)
    answer = asyncio.run(find_answer(url_of(store), whom, question, Wiring(settings)))
    if as_json:
        for hit in grouped(answer.passages) if by_document else answer.passages:
            click.echo(json.dumps(hit, ensure_ascii=False))
        if facets:
            click.echo(json.dumps({"facets": answer.facets}, ensure_ascii=False))
        return
    hits = [hit for document in grouped(answer.passages) for hit in document["passages"]]
    _show(hits if by_document else answer.passages, asked, by_document=by_document)
    _show_facets(answer.facets)


def _judge(url: str | None, model: str, key_file: str | None) -> RerankEndpoint | None:
    """The reranker that is asked for. Its key is read from a file: a command line can be read by everybody."""
    if url is None:
        return None
    from penstock.cli.settings.secrets import read_secret
    from penstock.indexing import RerankEndpoint

    return RerankEndpoint(url, model, read_secret(key_file) if key_file else None)


def _show(hits: Sequence[Mapping[str, Any]], question: str, *, by_document: bool) -> None:
    if not hits:
        click.echo("Nothing was found.")
    document, number = None, 0
    for hit in hits:
        if by_document and document != (hit["bucket"], hit["key"]):
            document, number = (hit["bucket"], hit["key"]), 0
            named = f"{hit['key']}: {hit['title']}" if hit["title"] else hit["key"]
            click.echo(click.style(terminal_text(named), bold=True, underline=True))
        number += 1
        heading = click.style(f"{number}." if by_document else f"{number}. {terminal_text(hit['key'])}", bold=True)
        click.echo(f"{heading}  {click.style(_place(hit), dim=True)}")
        if hit["metadata"]:
            click.echo(click.style(f"{_INDENT}{terminal_text(_metadata_line(hit['metadata']))}", dim=True))
        if hit["section"]:
            click.echo(click.style(_laid_out(hit["section"], question), italic=True))
        for part in ("before", "text", "after"):
            if hit.get(part):
                shown = _laid_out(hit[part], question, whole="before" in hit)
                click.echo(shown if part == "text" else click.style(shown, dim=True))
        click.echo()


def _place(hit: Mapping[str, Any]) -> str:
    """Where a passage stands, what it is written in, and how well it answers."""
    score = hit.get("rerank_score", hit["score"])
    page = f"page {hit['page']:,}  " if hit["page"] else ""
    language = f"{terminal_text(hit['language'])}  " if hit["language"] else ""
    return f"{page}bytes {hit['start']:,}–{hit['end']:,}  {language}score {score:.3f}"


def _metadata_line(metadata: Mapping[str, Any]) -> str:
    """What is said of a document, as much of it as fits a line."""
    values = (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in metadata.values())
    line = ", ".join(f"{name}: {value}" for name, value in zip(metadata, values, strict=True))
    return line if len(line) <= _METADATA_CHARACTERS_MAX else f"{line[:_METADATA_CHARACTERS_MAX]}…"


def _show_facets(facets: Mapping[str, Mapping[str, Any]]) -> None:
    for name, facet in facets.items():
        counts = [f"{value['value']} ({value['count']:,})" for value in facet["values"]]
        counts += [f"{what} ({facet[key]:,})" for what, key in (("others", "other"), ("none", "missing")) if facet[key]]
        click.echo(terminal_text(f"{name}: {', '.join(counts) or 'no passages'}"))


def _laid_out(text: str, question: str, *, whole: bool = False) -> str:
    """Indented, and wrapped where a person reads it; a program gets one line."""
    shown = terminal_text(" ".join(text.split()) if whole else snippet(text, question, _PASSAGE_CHARACTERS_MAX))
    if not sys.stdout.isatty():
        return f"{_INDENT}{shown}"
    width = max(_WIDTH_MIN, get_terminal_size().columns)
    laid_out = fill(shown, width, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False)
    return _highlighted(laid_out, question)


def _highlighted(text: str, question: str) -> str:
    """With the words that match drawn boldly. Behind all that looks at lengths: signs for a terminal have one, too."""
    from penstock.indexing import highlights

    pieces, reached = [], 0
    for start, end in highlights(text, question):
        pieces += [text[reached:start], click.style(text[start:end], bold=True)]
        reached = end
    return "".join([*pieces, text[reached:]])


def _is_broken(text: str) -> bool:
    """Whether it holds bytes that were no text, as the command line passes them on."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)
