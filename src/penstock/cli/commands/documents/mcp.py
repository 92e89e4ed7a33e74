"""`penstock mcp`: an index as tools of a language model, over the Model Context Protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.settings.long_running import long_running
from penstock.cli.settings.options import collection_options, provider_options

if TYPE_CHECKING:
    from penstock.cli.settings.configuration import Settings
    from penstock.cli.settings.observing import Watching
    from penstock.indexing import Provider

__all__ = ["mcp"]


@click.command()
@collection_options
@provider_options
@long_running
def mcp(
    store: str,
    index_name: str,
    tenant: str,
    model: str | None,
    provider: Provider,
    settings: Settings,
    watching: Watching,
) -> None:
    """Serve search to language models over MCP, on standard input.

    A client such as a desktop assistant or an editor starts this command and talks to it over standard input and
    output. Its tools only read: search, fetch and list_documents, of one index.
    """
    from penstock.cli.serving.mcp_server import mcp_server
    from penstock.cli.settings.wiring import Wiring
    from penstock.indexing import Asked, url_of

    with watching.opened() as observer:
        asked = Asked(tenant, index_name, model, provider)
        mcp_server(url_of(store), asked, Wiring(settings, observer)).run("stdio")
