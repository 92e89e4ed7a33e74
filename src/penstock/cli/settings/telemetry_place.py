"""Where telemetry lies in a store: in a part of its own, beside the queue and the index of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.indexing import url_of
from penstock.objects import StoreUrl, parse_url

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["catalog_place", "signal_tables", "telemetry_url"]


def telemetry_url(store: str) -> str:
    """The URL of that part: its queue, its catalog below `lake`, and its series below `series`."""
    url = parse_url(url_of(store))
    if url.scheme == "file":
        return str(StoreUrl("file", f"{url.place}/telemetry"))
    return str(StoreUrl(url.scheme, url.place, f"{url.prefix}/telemetry" if url.prefix else "telemetry"))


def catalog_place(store: str, prefix: str | None) -> tuple[str, str]:
    """The URL and prefix of a catalog: with a prefix the one there, without one that of telemetry in this store.

    The URL is the one that telemetry's own jobs open: a directory's locks lie in it.
    """
    return (telemetry_url(store), "lake") if prefix is None else (url_of(store), prefix)


def signal_tables() -> dict[str, pa.Schema]:
    """Metrics, logs and traces, which are there before the first row of them; without the extra only what has files."""
    try:
        from penstock.telemetry import TABLES, query_schema
    except ModuleNotFoundError:
        return {}
    return {name: query_schema(signal) for signal, name in TABLES.items()}
