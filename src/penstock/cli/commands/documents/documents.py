"""`penstock documents`: what became of documents, and a second chance or an end for some of them.

`list` and `show` read beside whoever writes. `retry` and `forget` change nothing themselves: they put notifications on
the queue, behind everything the index has heard of the object, and the indexing job takes them from there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli.settings.options import bucket_option, collection_options, json_option, settings_option
from penstock.cli.terminal.tables import table_lines
from penstock.cli.terminal.terminal_text import terminal_text
from penstock.errors import NotFound

if TYPE_CHECKING:
    from penstock.cli.settings.configuration import Settings
    from penstock.cli.settings.wiring import Wiring
    from penstock.documents import Notification
    from penstock.indexing import DocumentEntry
    from penstock.vector import CollectionName

__all__ = ["STATUSES", "documents"]

_NEXT: Final = "`penstock index` takes them from the queue"
# What a document can be; a test holds them to the reports.
STATUSES: Final = ("pending", "indexed", "empty", "incomplete", "quarantined", "superseded", "deleted", "metadata")
_QUARANTINED: Final = "quarantined"


@click.group()
def documents() -> None:
    """List, count, retry and forget documents, with their status."""


@documents.command("list")
@collection_options
@click.option("--status", type=click.Choice(STATUSES), default=None, help="Status of the documents to list.")
@json_option
@settings_option
def list_documents(
    store: str,
    index_name: str,
    tenant: str,
    model: str | None,
    status: str | None,
    as_json: bool,
    settings: Settings,
) -> None:
    """List the documents of an index with their last reports."""
    from penstock.cli.inspection.document_status import row_of, status_of

    wiring = _wired(settings)
    _, _, entries = _read(wiring, store, tenant, index_name, model)
    rows = [row_of(entry) for entry in entries if status in (None, status_of(entry))]
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False))
    elif not rows:
        click.echo(f"Index {index_name} has no such documents." if status else f"Index {index_name} has no documents.")
    else:
        _show_table(rows)


@documents.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY…")
@collection_options
@json_option
@settings_option
def show(
    keys: tuple[str, ...],
    store: str,
    index_name: str,
    tenant: str,
    model: str | None,
    as_json: bool,
    settings: Settings,
) -> None:
    """Show all details of documents."""
    from penstock.cli.inspection.document_status import details_of, lines_of, row_of
    from penstock.indexing import find_entries

    wiring = _wired(settings)
    _, _, entries = _read(wiring, store, tenant, index_name, model)
    for entry in find_entries(entries, keys):
        if as_json:
            click.echo(json.dumps({**row_of(entry), **details_of(entry)}, ensure_ascii=False))
            continue
        click.echo(terminal_text(entry.key))
        for what, value in lines_of(entry):
            click.echo(f"  {what:<11} {terminal_text(value)}")


@documents.command()
@click.argument("keys", nargs=-1, metavar="[KEY]…")
@click.option("--all-quarantined", is_flag=True, help="Retry every document that could not be read or parsed.")
@collection_options
@bucket_option
@json_option
@settings_option
def retry(
    keys: tuple[str, ...],
    all_quarantined: bool,
    store: str,
    index_name: str,
    tenant: str,
    model: str | None,
    buckets: Mapping[str, str],
    as_json: bool,
    settings: Settings,
) -> None:
    """Read documents again, even if they have not changed."""
    if bool(keys) == all_quarantined:
        raise click.UsageError("name documents, or give --all-quarantined")
    from penstock.cli.inspection.document_status import status_of
    from penstock.clock import SYSTEM_CLOCK
    from penstock.indexing import find_entries, retry_events, send

    wiring = _wired(settings)
    url, name, entries = _read(wiring, store, tenant, index_name, model)
    quarantined = [entry for entry in entries if status_of(entry) == _QUARANTINED]
    chosen = quarantined if all_quarantined else find_entries(entries, keys)
    events, missing = retry_events(name, chosen, wiring.reading(buckets=buckets), SYSTEM_CLOCK.now_ms())
    gone = [entry.key for entry in missing]
    if gone and not all_quarantined:
        raise NotFound(
            f"{', '.join(gone)} cannot be read again", "the bucket no longer has it", "`penstock documents forget`"
        )
    send(url, events, wiring)
    _report("retry", events, [f"{key}: gone from its bucket" for key in gone], as_json)


@documents.command()
@collection_options
@click.option(
    "--filter", "where", default=None, metavar="EXPR", help="Filter on attributes, such as \"language = 'de'\"."
)
@click.option("--by", default=None, metavar="ATTRIBUTE", help="Attribute whose values to count.")
@json_option
@settings_option
def count(
    store: str,
    index_name: str,
    tenant: str,
    model: str | None,
    where: str | None,
    by: str | None,
    as_json: bool,
    settings: Settings,
) -> None:
    """Count the documents and passages that a filter selects."""
    import asyncio

    from penstock.indexing import FilterCount, count_where, find_target, parse_filter, require_store, url_of

    wiring, url = _wired(settings), url_of(store)
    chosen = parse_filter(where) if where is not None else None

    async def counted() -> FilterCount:
        await require_store(url, wiring)
        name = (await find_target(url, tenant, index_name, model, wiring)).name
        return await count_where(url, name, chosen, by=by, doors=wiring)

    found = asyncio.run(counted())
    told: dict[str, Any] = {"documents": found.documents, "passages": found.passages}
    if found.facet is not None:
        told["values"] = [{"value": value, "passages": passages} for value, passages in found.facet.values]
        told |= {"other": found.facet.other, "missing": found.facet.missing}
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False))
        return
    click.echo(f"{found.documents:,} documents, {found.passages:,} passages")
    if found.facet is not None:
        rows = [(str(value), f"{passages:,}") for value, passages in found.facet.values]
        rest = (("(others)", found.facet.other), ("(none)", found.facet.missing))
        rows += [(what, f"{passages:,}") for what, passages in rest if passages]
        for line in table_lines((by or "", "passages"), rows, right=("passages",)):
            click.echo(terminal_text(line))


@documents.command()
@click.argument("keys", nargs=-1, metavar="[KEY]…")
@click.option(
    "--filter",
    "where",
    default=None,
    metavar="EXPR",
    help="Forget every document that has a passage with these attributes.",
)
@click.option("--dry-run", is_flag=True, help="Only list what would be forgotten.")
@collection_options
@json_option
@settings_option
def forget(
    keys: tuple[str, ...],
    where: str | None,
    dry_run: bool,
    store: str,
    index_name: str,
    tenant: str,
    model: str | None,
    as_json: bool,
    settings: Settings,
) -> None:
    """Remove documents from the index; the files themselves stay.

    A document comes back when it changes, or when it is indexed by name.
    """
    if bool(keys) == (where is not None):
        raise click.UsageError("name documents, or give --filter")
    import asyncio

    from penstock.clock import SYSTEM_CLOCK
    from penstock.indexing import documents_where, find_entries, forget_events, parse_filter, send

    wiring = _wired(settings)
    chosen = parse_filter(where) if where is not None else None
    url, name, entries = _read(wiring, store, tenant, index_name, model)
    if chosen is None:
        wanted = find_entries(entries, keys)
    else:
        selected = set(asyncio.run(documents_where(url, name, chosen, wiring)))
        wanted = [entry for entry in entries if (entry.bucket, entry.key) in selected]
    events, removed = forget_events(name, wanted, SYSTEM_CLOCK.now_ms())
    if dry_run:
        _report("would forget", events, [], as_json, queued=False)
        return
    send(url, events, wiring)
    skipped = [f"{entry.key}: removed already" for entry in removed]
    _report("forget", events, skipped, as_json, note="; the files and objects themselves stay")


def _wired(settings: Settings) -> Wiring:
    from penstock.cli.settings.wiring import Wiring

    return Wiring(settings)


def _read(
    wiring: Wiring, store: str, tenant: str, index_name: str, model: str | None
) -> tuple[str, CollectionName, list[DocumentEntry]]:
    """The store's URL, the collection that answers for the index, and all that is known of its documents."""
    import asyncio

    from penstock.indexing import find_target, read_entries, require_store, url_of

    async def read() -> tuple[str, CollectionName, list[DocumentEntry]]:
        url = url_of(store)
        await require_store(url, wiring)
        name = (await find_target(url, tenant, index_name, model, wiring)).name
        return url, name, await read_entries(url, name, wiring)

    return asyncio.run(read())


def _show_table(rows: Sequence[Mapping[str, Any]]) -> None:
    from penstock.cli.inspection.document_status import warning_of

    cells = [
        (row["key"], row["status"], f"{row['chunks']:,}", f"{row['tokens']:,}", row["reason"] or warning_of(row))
        for row in rows
    ]
    for line in table_lines(("document", "status", "chunks", "tokens", "reason"), cells, right=("chunks", "tokens")):
        click.echo(terminal_text(line))


def _report(
    verb: str,
    events: Sequence[Notification],
    skipped: Sequence[str],
    as_json: bool,
    *,
    note: str = "",
    queued: bool = True,
) -> None:
    """What was queued, and why some of what was named was not."""
    if as_json:
        told = [{"bucket": event.bucket, "key": event.key, "event": verb} for event in events]
        click.echo(json.dumps({"queued" if queued else "found": told, "skipped": list(skipped)}, ensure_ascii=False))
        return
    for event in events:
        click.echo(terminal_text(f"{verb} {event.bucket}/{event.key}"))
    for reason in skipped:
        click.echo(terminal_text(f"skipped: {reason}"))
    if not queued:
        click.echo(f"{len(events):,} found, nothing was queued")
        return
    click.echo(f"{len(events):,} queued" + (f": {_NEXT}{note}" if events else ""))
