"""Where the catalog's objects lie below its prefix. One module knows the names."""

from __future__ import annotations

import re
from typing import Final

from penstock.catalog.format.shard_map import ROOT
from penstock.errors import InvalidInput

__all__ = ["CatalogLayout", "check_shard_id"]

_SHARD: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def check_shard_id(shard: str) -> str:
    if not _SHARD.fullmatch(shard):
        raise InvalidInput(
            f"shard id {shard!r}", "it must be up to 63 of a-z, 0-9, - and _, and begin with a letter or digit"
        )
    return shard


class CatalogLayout:
    """Keys of one catalog."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix.strip("/")

    def key(self, path: str) -> str:
        """The key of a path that is relative to the catalog."""
        return f"{self.prefix}/{path}" if self.prefix else path

    def path(self, key: str) -> str:
        return key[len(self.prefix) + 1 :] if self.prefix else key

    @property
    def metadata(self) -> str:
        return self.key("metadata")

    @property
    def shard_map(self) -> str:
        return self.key("metadata/shards.json")

    @property
    def global_index(self) -> str:
        return self.key("metadata/global-index.json")

    @property
    def legacy_chunks(self) -> str:
        return self.key("metadata/chunks/metadata.json")

    @property
    def legacy_index(self) -> str:
        return self.key("metadata/time-index.json")

    def folder(self, shard: str) -> str:
        """Where a shard's segments lie, relative to the prefix, as heads name them."""
        return "metadata" if shard == ROOT else f"metadata/shards/{shard}"

    def head(self, shard: str) -> str:
        return self.key(f"{self.folder(shard)}/catalog.json")
