"""`penstock catalog`: look at a catalog of data files, move it between formats, split it and keep it small.

The room is imported when a command runs. Every command prints for a person, or one JSON object with `--json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli.settings.long_running import long_running
from penstock.cli.settings.numbers import FiniteRange
from penstock.cli.settings.options import settings_option
from penstock.cli.terminal.terminal_text import terminal_text
from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.catalog import Catalog, DataFile, MigrationReport, Plan
    from penstock.cli.settings.configuration import Settings
    from penstock.cli.settings.observing import Watching
    from penstock.observability import Observer

__all__ = ["catalog"]

_prefix_option: Final = click.option("--prefix", default="", help="Prefix of the catalog below the URL.")
_json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_format_option: Final = click.option(
    "--format",
    "version",
    type=click.IntRange(2, 3),
    default=None,
    help="Version to write.  [default: from the settings, else 3]",
)


@click.group()
def catalog() -> None:
    """Inspect, migrate, split or vacuum a catalog of data files.

    URL is file:///directory, s3://bucket/prefix, az://container/prefix or gs://bucket/prefix;
    credentials and endpoints come from the service's usual environment variables. The root shard is
    written as a single dot.
    """


@catalog.command()
@click.argument("url")
@_prefix_option
@_format_option
@click.option("--dry-run", is_flag=True, help="Only report; write nothing.")
@click.option("--repair", is_flag=True, help="Migrate an inconsistent pair, with a rebuilt time index.")
@click.option("--delete-legacy", is_flag=True, help="Delete the pair after the catalog has been read back.")
@click.option("--backup", is_flag=True, help="Copy the pair below metadata/backup first.")
@settings_option
@_json_option
def migrate(
    url: str,
    prefix: str,
    version: int | None,
    dry_run: bool,
    repair: bool,
    delete_legacy: bool,
    backup: bool,
    as_json: bool,
    settings: Settings,
) -> None:
    """Create catalog.json from the legacy pair of objects.

    Exit code 1 if a dry run finds the pair inconsistent, or if the pair was written after the migration.
    """

    async def work(opened: Catalog) -> MigrationReport:
        from penstock.catalog import migrate

        return await migrate(opened, dry_run=dry_run, repair=repair, delete_legacy=delete_legacy, backup=backup)

    report = _on(url, prefix, settings, work, read_only=dry_run, format=version)
    _show_report(report, as_json)
    if report.pair_changed_since or (dry_run and not report.is_consistent):
        raise SystemExit(1)


@catalog.command("split-catalog")
@click.argument("url")
@_prefix_option
@settings_option
@_json_option
def split_catalog(url: str, prefix: str, as_json: bool, settings: Settings) -> None:
    """Restore the legacy pair of objects, for a rollback."""

    async def work(opened: Catalog) -> MigrationReport:
        from penstock.catalog import split_catalog

        return await split_catalog(opened)

    _show_report(_on(url, prefix, settings, work, read_only=False, existing=True), as_json)


@catalog.command()
@click.argument("url")
@_prefix_option
@click.option("--to", "version", type=click.Choice(["2"]), required=True, help="Version to write.")
@settings_option
@_json_option
def downgrade(url: str, prefix: str, version: str, as_json: bool, settings: Settings) -> None:
    """Write the catalog as version 2, every file inline. Stop the writers first."""

    async def work(opened: Catalog) -> MigrationReport:
        from penstock.catalog import downgrade

        return await downgrade(opened, to=int(version))

    _show_report(_on(url, prefix, settings, work, read_only=False), as_json)


@catalog.command("rebuild-index")
@click.argument("url")
@_prefix_option
@_format_option
@settings_option
@_json_option
def rebuild_index(url: str, prefix: str, version: int | None, as_json: bool, settings: Settings) -> None:
    """Rebuild the time index and the global index from the files."""

    async def work(opened: Catalog) -> MigrationReport:
        from penstock.catalog import rebuild_index

        return await rebuild_index(opened)

    _show_report(_on(url, prefix, settings, work, read_only=False, existing=True, format=version), as_json)


@catalog.command()
@click.argument("url")
@_prefix_option
@click.option("--data", is_flag=True, help="Check that every data file is there with its size.")
@settings_option
@_json_option
def verify(url: str, prefix: str, data: bool, as_json: bool, settings: Settings) -> None:
    """Check heads, indexes, segments and routing. Exit code 1 if there is any problem."""

    async def work(opened: Catalog) -> list[dict[str, str]]:
        from penstock.catalog import verify_catalog

        found = await verify_catalog(opened, data=data)
        return [{"place": one.place, "fault": one.fault} for one in found]

    found = _on(url, prefix, settings, work)
    if as_json:
        _print_json({"problems": found})
    else:
        for one in found:
            click.echo(terminal_text(f"{one['place']}: {one['fault']}"))
        click.echo(f"{len(found)} problems")
    if found:
        raise SystemExit(1)


@catalog.command()
@click.argument("url")
@_prefix_option
@click.option("--from", "start", default=None, help="Start of the range, as ISO 8601 or nanoseconds.")
@click.option("--to", "end", default=None, help="End of the range, exclusive, as ISO 8601 or nanoseconds.")
@click.option("--where", "predicates", multiple=True, help="Predicate on a column, like `status>=500`. Repeatable.")
@click.option("--tenant", default=None, help="Tenant of the files.")
@click.option("--table", default=None, help="Table of the files.")
@click.option("--shard", default=None, help="Shard id of the files.")
@click.option("--column", "columns", multiple=True, help="Column whose statistics to show. Repeatable.")
@click.option("--partial", is_flag=True, help="Continue without segments that cannot be read.")
@settings_option
@_json_option
def plan(
    url: str,
    prefix: str,
    start: str | None,
    end: str | None,
    predicates: tuple[str, ...],
    tenant: str | None,
    table: str | None,
    shard: str | None,
    columns: tuple[str, ...],
    partial: bool,
    as_json: bool,
    settings: Settings,
) -> None:
    """List the files that a query of a time range reads."""

    async def work(opened: Catalog) -> Plan:
        from penstock.catalog import parse_predicate

        return await opened.plan(
            _time(start),
            _time(end),
            [parse_predicate(text) for text in predicates],
            shard,
            columns or None,
            tenant=tenant,
            table=table,
            partial=partial,
        )

    found = _on(url, prefix, settings, work)
    if as_json:
        _print_json(
            {
                "files": [_file_json(file) for file in found.files],
                "total_files": found.total_files,
                "position": found.position,
                "missing": list(found.missing),
            }
        )
        return
    for file in found.files:
        click.echo(_file_line(file))
    click.echo(f"{len(found)} of {found.total_files} files, {found.row_count:,} rows, {found.size_bytes:,} bytes")
    for key in found.missing:
        click.echo(f"missing: {terminal_text(key)}")


@catalog.command()
@click.argument("url")
@_prefix_option
@click.option("--shard", default=None, help="Shard id of the files.")
@click.option("--level", type=click.IntRange(0, 15), default=None, help="Compaction level; leased files are left out.")
@click.option("--as-of", "seq", type=int, default=None, help="Sequence of an earlier state.")
@settings_option
@_json_option
def files(
    url: str, prefix: str, shard: str | None, level: int | None, seq: int | None, as_json: bool, settings: Settings
) -> None:
    """List data files, of all shards or of one."""

    async def work(opened: Catalog) -> list[DataFile]:
        if level is not None:
            return await opened.level_candidates(level, shard=shard)
        if seq is not None:
            return await (await opened.as_of(seq)).files(shard=shard)
        return await opened.files(shard=shard)

    found = _on(url, prefix, settings, work)
    if as_json:
        _print_json({"files": [_file_json(file) for file in found]})
        return
    for file in found:
        click.echo(_file_line(file))
    click.echo(f"{len(found)} files")


@catalog.command()
@click.argument("url")
@_prefix_option
@settings_option
@_json_option
def stats(url: str, prefix: str, as_json: bool, settings: Settings) -> None:
    """Show the size of every shard, and which to split."""

    async def work(opened: Catalog) -> dict[str, Any]:
        from penstock.catalog import catalog_stats

        found = await catalog_stats(opened)
        return {**asdict(found), "files": found.files}

    found = _on(url, prefix, settings, work)
    if as_json:
        _print_json(found)
        return
    for one in found["shards"]:
        click.echo(
            f"shard         {one['shard'] or '(root)'}, {one['state']}, version {one['version']}, seq {one['seq']}"
        )
        click.echo(f"files         {one['files']:,}, {one['inline_files']:,} of them inline")
        click.echo(f"segments      {one['segments']}, archived days {one['archived_days']}")
        click.echo(f"rows          {one['rows']:,} in {one['size_bytes']:,} bytes")
        click.echo(f"removed       {one['tombstones']:,}; leases {one['leases']}, pins {one['pins']}")
        click.echo(f"head          {one['head_bytes']:,} bytes")
        for source, position in one["sources"].items():
            click.echo(f"source        {terminal_text(source)} at {position:,}")
        for advice in one["advice"]:
            click.echo(f"advice        {advice}")


@catalog.command()
@click.argument("url")
@_prefix_option
@click.option("--dry-run", is_flag=True, help="Only list what would be deleted.")
@click.option(
    "--grace",
    type=FiniteRange(0),
    default=None,
    help="Time a removed file is kept, in seconds.  [default: from the settings]",
)
@click.option(
    "--age-floor",
    type=FiniteRange(0),
    default=None,
    help="Time an unknown object is kept, in seconds.  [default: from the settings]",
)
@click.option(
    "--orphans", "data_prefix", default=None, help="Prefix of data files whose unlisted objects are deleted too."
)
@_json_option
@long_running
def vacuum(
    url: str,
    prefix: str,
    dry_run: bool,
    grace: float | None,
    age_floor: float | None,
    data_prefix: str | None,
    as_json: bool,
    settings: Settings,
    watching: Watching,
) -> None:
    """Delete files and objects that nothing refers to.

    Removed and replaced files are kept for the grace period first.
    """

    async def work(opened: Catalog) -> dict[str, Any]:
        from penstock.catalog import Vacuum

        return asdict(await Vacuum(opened).run(dry_run=dry_run, data_prefix=data_prefix))

    limits = {"grace_seconds": grace, "age_floor_seconds": age_floor}
    with watching.opened() as observer:
        found = _on(url, prefix, settings, work, read_only=dry_run, existing=True, observer=observer, **limits)
    if as_json:
        _print_json(found)
        return
    for kind in ("files", "segments", "orphans"):
        for key in found[kind]:
            click.echo(f"{kind[:-1]:8}  {terminal_text(key)}")
    total = sum(len(found[kind]) for kind in ("files", "segments", "orphans"))
    click.echo(f"{total} objects {'would be deleted' if dry_run else 'deleted'}")


@catalog.command()
@click.argument("url")
@_prefix_option
@settings_option
@_json_option
def index(url: str, prefix: str, as_json: bool, settings: Settings) -> None:
    """Rebuild the global index of shards and times."""

    async def work(opened: Catalog) -> dict[str, Any]:
        found = await opened.write_index()
        ranges = {name: [list(one) for one in times.ranges] for name, times in found.shards.items()}
        return {"generation": found.generation, "made_ms": found.made_ms, "shards": ranges}

    found = _on(url, prefix, settings, work, read_only=False, existing=True)
    if as_json:
        _print_json(found)
        return
    for name, ranges in found["shards"].items():
        click.echo(f"{name or '(root)'}  {len(ranges)} ranges")


@catalog.command()
@click.argument("url")
@click.argument("shard")
@click.argument("children", nargs=-1)
@_prefix_option
@settings_option
@_json_option
def split(url: str, shard: str, children: tuple[str, ...], prefix: str, as_json: bool, settings: Settings) -> None:
    """Split SHARD into CHILDREN, or finish an earlier split. The root shard is a single dot."""

    async def work(opened: Catalog) -> dict[str, Any]:
        from penstock.catalog import split_shard

        found = await split_shard(opened, "" if shard == "." else shard, list(children))
        return {"generation": found.generation, "shards": found.shards()}

    found = _on(url, prefix, settings, work, read_only=False)
    if as_json:
        _print_json(found)
    else:
        click.echo(f"generation {found['generation']}: {', '.join(name or '(root)' for name in found['shards'])}")


def _on(
    url: str,
    prefix: str,
    settings: Settings,
    work: Callable[[Catalog], Coroutine[Any, Any, Any]],
    *,
    read_only: bool = True,
    existing: bool = False,
    observer: Observer | None = None,
    **options: Any,
) -> Any:
    """Run on the catalog, whose store is opened for reading unless the command says otherwise.

    With `existing` there must be a catalog: it is looked for by reading, and a mistyped name leaves no trace.
    """
    import asyncio

    from penstock.catalog import Catalog, CatalogConfig, require_catalog
    from penstock.cli.settings.store_access import store_options
    from penstock.indexing import url_of
    from penstock.objects import open_store
    from penstock.observability import SILENT

    config, place, told = settings.of(CatalogConfig, **options), url_of(url), observer or SILENT

    async def on_store(work: Callable[[Catalog], Coroutine[Any, Any, Any]], *, read_only: bool) -> Any:
        store = await open_store(place, read_only=read_only, observer=told, **store_options(settings, place))
        try:
            async with await Catalog.open(store, prefix, config, observer=told) as opened:
                return await work(opened)
        finally:
            await store.close()

    async def run() -> Any:
        if existing:
            await on_store(require_catalog, read_only=True)
        return await on_store(work, read_only=read_only)

    return asyncio.run(run())


def _time(text: str | None) -> int | None:
    if text is None:
        return None
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(f"time {text!r}", "it is neither ISO 8601 nor a number of nanoseconds") from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000


def _file_json(file: DataFile) -> dict[str, Any]:
    from penstock.catalog import file_json

    return file_json(file)


def _file_line(file: DataFile) -> str:
    start, end = (_moment(time) for time in (file.min_timestamp, file.max_timestamp))
    return terminal_text(
        f"{file.path}  L{file.level}  {start} to {end}  {file.row_count:,} rows, {file.size_bytes:,} bytes"
    )


def _moment(time_ns: int) -> str:
    try:
        return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError):
        # The calendar ends with the year 9999.
        return f"{time_ns} ns"


def _print_json(found: Any) -> None:
    click.echo(json.dumps(found, ensure_ascii=False))


def _show_report(report: MigrationReport, as_json: bool) -> None:
    if as_json:
        _print_json({**asdict(report), "is_consistent": report.is_consistent})
        return
    click.echo(f"{report.files:,} files{', written before' if report.was_migrated else ''}")
    faults = (
        ("missing from the time index", report.missing_from_index),
        ("in the time index, without metadata", report.missing_from_metadata),
        ("under a wrong hour, or twice", report.misplaced),
    )
    for what, paths in faults:
        for path in paths:
            click.echo(terminal_text(f"{what}: {path}"))
    for verb, keys in (("read", report.read), ("wrote", report.written)):
        for key, digest in keys.items():
            click.echo(terminal_text(f"{verb} {key}  {digest or ''}"))
    for verb, names in (("backup", report.backups), ("deleted", report.deleted)):
        for key in names:
            click.echo(terminal_text(f"{verb} {key}"))
    if report.pair_changed_since:
        click.echo("the legacy pair was written after the migration: a writer of the old release is still running")
