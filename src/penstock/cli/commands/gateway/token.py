"""`penstock token`: make, list and revoke the tokens of a gateway.

The file holds digests, so that a token can be shown only once, when it is made. A running gateway reads the file again
when it changes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import click

from penstock.cli.settings.options import json_option

__all__ = ["token"]

_FILE: Final = "penstock-tokens.json"
_SCOPES: Final = ("write", "read", "admin")
_DAY_MS: Final = 86_400_000

_file_option: Final = click.option(
    "--file", "file", default=_FILE, show_default=True, type=click.Path(dir_okay=False), help="File with the tokens."
)


@click.group()
def token() -> None:
    """Create, list and revoke the tokens of a gateway."""


@token.command()
@_file_option
@click.option("--tenant", required=True, help="Tenant that the token belongs to.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(_SCOPES),
    default=("write", "read"),
    show_default=True,
    help="What the token allows. Repeatable.",
)
@click.option("--days", type=click.IntRange(1, 36_500), default=None, help="Days until the token expires.")
@click.option("--note", default="", help="What the token is for.")
@json_option
def create(file: str, tenant: str, scopes: tuple[str, ...], days: int | None, note: str, as_json: bool) -> None:
    """Create a token and print it. It cannot be shown again."""
    from penstock.clock import SYSTEM_CLOCK
    from penstock.gateway import Scope, TokenBook

    path, now_ms = Path(file), SYSTEM_CLOCK.now_ms()
    before = TokenBook.load(path) if path.exists() else None
    expires = None if days is None else now_ms + days * _DAY_MS
    book, text = (before or TokenBook.new()).issue(
        tenant, [Scope(scope) for scope in scopes], now_ms, expires_at_ms=expires, note=note
    )
    book.save(path, replaces=before)
    click.echo(json.dumps({"token": text, "tenant": tenant, "scopes": sorted(scopes)}) if as_json else text)
    if sys.stderr.isatty():
        # For people; a script that reads the token is not told.
        click.echo(f"Keep it: it is not shown again. `penstock serve --tokens {file}` requires it.", err=True)


@token.command(name="list")
@_file_option
@json_option
def list_tokens(file: str, as_json: bool) -> None:
    """List tokens by their public ids."""
    from datetime import UTC, datetime

    from penstock.cli.terminal.terminal_text import terminal_text
    from penstock.gateway import TokenBook

    for entry in TokenBook.load(Path(file)).entries.values():
        until = entry.expires_at_ms
        told = {"id": entry.id, "tenant": entry.tenant, "scopes": list(entry.scopes), "note": entry.note}
        if as_json:
            click.echo(json.dumps({**told, "createdAtMs": entry.created_at_ms, "expiresAtMs": until}))
            continue
        ends = datetime.fromtimestamp(until / 1000, UTC).date().isoformat() if until else "never"
        scopes = ",".join(entry.scopes)
        click.echo(terminal_text(f"{entry.id}  {entry.tenant}  {scopes}  expires {ends}  {entry.note}".rstrip()))


@token.command()
@_file_option
@click.argument("token_id", metavar="ID")
def revoke(file: str, token_id: str) -> None:
    """Revoke a token by its public id.

    That is the part of the token between its underscores.
    """
    from penstock.gateway import TokenBook

    path = Path(file)
    before = TokenBook.load(path)
    before.without(token_id).save(path, replaces=before)
    click.echo(f"revoked {token_id}")
