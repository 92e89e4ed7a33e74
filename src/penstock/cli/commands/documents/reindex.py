"""`penstock reindex`: another model or another chunking for an index that goes on answering.

What is asked for is written down first, and what is left to do is told from what is stored: a run that was killed is
simply repeated, without options.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.settings.long_running import long_running
from penstock.cli.settings.options import (
    allow_option,
    bucket_option,
    budget_options,
    chunking_options,
    collection_options,
    engine_option,
    json_option,
    master_option,
    old_key_options,
    provider_options,
    rate_options,
)

if TYPE_CHECKING:
    from penstock.cli.settings.configuration import Settings
    from penstock.cli.settings.observing import Watching
    from penstock.indexing import EmbeddingBudget, Provider

__all__ = ["reindex"]


@click.command()
@collection_options
@budget_options
@rate_options
@provider_options
@old_key_options
@chunking_options
@click.option("--keep", is_flag=True, help="Keep the collection of the replaced model.")
@click.option("--leave-behind", is_flag=True, help="Drop documents that can no longer be read.")
@click.option("--cancel", is_flag=True, help="Cancel the rebuild and keep the index as it is.")
@bucket_option
@allow_option
@engine_option
@master_option
@json_option
@long_running
def reindex(
    store: str,
    index_name: str,
    tenant: str,
    model: str | None,
    provider: Provider,
    budget: EmbeddingBudget,
    old_embedding_key: str | None,
    old_embedding_key_file: Path | None,
    chunk_tokens: int | None,
    max_tokens: int | None,
    overlap_tokens: int | None,
    keep: bool,
    leave_behind: bool,
    cancel: bool,
    buckets: Mapping[str, str],
    allowed: tuple[str, ...],
    engine: str,
    master: str,
    as_json: bool,
    settings: Settings,
    watching: Watching,
) -> None:
    """Rebuild an index with another model or chunk size.

    The index keeps answering searches. Without options, an interrupted rebuild continues.
    """
    from rich.console import Console

    from penstock.cli.jobs.rebuild import RebuildOrder, rebuild_index
    from penstock.cli.running.job import StageEngine
    from penstock.cli.running.stop import ENDING, Stop
    from penstock.cli.settings.providers import read_key
    from penstock.cli.settings.wiring import Wiring
    from penstock.indexing import Wish, are_exhaustive, url_of

    key = read_key(old_embedding_key, old_embedding_key_file)
    wish = Wish(model, provider.url, chunk_tokens, max_tokens, overlap_tokens)
    console = Console(emoji=False, highlight=False, quiet=as_json, soft_wrap=True)
    with watching.opened() as observer, Stop(lambda: console.print(ENDING)) as stop:
        wiring = Wiring(settings, observer)
        order = RebuildOrder(
            url_of(store),
            tenant,
            index_name,
            wish,
            provider,
            key,
            keep=keep,
            leave_behind=leave_behind,
            cancel=cancel,
            engine=StageEngine(engine),
            wiring=wiring,
            budget=budget,
        )
        reading = wiring.reading(buckets=buckets, places=allowed, places_only=are_exhaustive(allowed))
        told = rebuild_index(order, reading, master, console, stop)
    if as_json and told is not None:
        click.echo(json.dumps(told, ensure_ascii=False))
    if stop.requested:
        stop.await_answer()
        console.print("interrupted: nothing is lost, and `penstock reindex` continues from here")
        raise SystemExit(stop.exit_code)
