"""Which of several queues a tenant's records go to, and which ones may hold what it sent before. Pure.

A store has one queue, or `shards` of them, told apart by a stable hash. A change of their number moves no data: it is
a new layout under the next version, the shards of earlier layouts are drained, and whoever reads asks every shard that
any layout gave the tenant. Shard 0 lies where the one queue lies. Bytes: docs/format/routing.md.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from penstock.buffer.config import CollectorConfig, ConsumerConfig, ProducerConfig
from penstock.errors import InvalidInput

__all__ = ["SHARDS_MAX", "Routing", "ShardKey", "ShardLayout", "shard_config", "shard_path"]

C = TypeVar("C", ProducerConfig, ConsumerConfig, CollectorConfig)

# Every shard is a queue that somebody polls and a store that somebody writes: thousands have met a mistake.
SHARDS_MAX: Final = 1024
# Rows that name no tenant are this one's in the time series, so they are routed as its rows.
_NOBODY: Final = "default"
_JUMP_MULTIPLIER: Final = 2862933555777941757
_MASK: Final = (1 << 64) - 1


class ShardKey(StrEnum):
    """The part of a row that decides its shard."""

    TENANT = "tenant"
    TENANT_AND_TABLE = "tenant-and-table"


class ShardLayout(msgspec.Struct, frozen=True):
    """So many shards, chosen by this key."""

    shards: int = 1
    by: ShardKey = ShardKey.TENANT

    def __post_init__(self) -> None:
        if type(self.shards) is not int or not 1 <= self.shards <= SHARDS_MAX:
            raise InvalidInput(f"shards = {self.shards!r}", f"it must be a whole number from 1 to {SHARDS_MAX}")

    def shard_of(self, tenant: str, table: str) -> int:
        """From 0 on. Where shards are added, a key stays where it is or goes to one of the new ones."""
        if self.shards == 1:
            return 0
        key = tenant or _NOBODY
        if self.by is ShardKey.TENANT_AND_TABLE:
            key = f"{key}\0{table}"
        digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return _jump(int.from_bytes(digest, "little"), self.shards)


class Routing(msgspec.Struct, frozen=True):
    """All layouts that a store has had, each once; the last one is in force."""

    version: int = 0
    layouts: tuple[ShardLayout, ...] = (ShardLayout(),)

    def __post_init__(self) -> None:
        if not self.layouts or self.version < 0:
            raise InvalidInput("a routing needs a layout", "at least one layout is always active")

    @property
    def layout(self) -> ShardLayout:
        return self.layouts[-1]

    @property
    def shards(self) -> range:
        """All shards that may hold anything."""
        return range(max(layout.shards for layout in self.layouts))

    def shards_of(self, tenant: str, table: str) -> tuple[int, ...]:
        """All shards that may hold rows of a tenant's table, the one that takes new ones last."""
        found = dict.fromkeys(layout.shard_of(tenant, table) for layout in reversed(self.layouts))
        return tuple(reversed(found))

    def changed_to(self, layout: ShardLayout) -> Routing:
        """With another layout in force; this very object if it is in force already."""
        if layout == self.layout:
            return self
        return Routing(self.version + 1, (*(one for one in self.layouts if one != layout), layout))


def shard_path(path: str, shard: int, base: str = "") -> str:
    """Where shard `shard` keeps what the first one keeps at `path`, which lies below `base`."""
    if not path or shard == 0:
        return path
    prefix = f"{base.strip('/')}/" if base.strip("/") else ""
    if not path.startswith(prefix):
        raise InvalidInput(f"the path {path!r} is not below {base!r}", "shards are stored next to the routing")
    return f"{prefix}shards/{shard:04}/{path.removeprefix(prefix)}"


def shard_config(config: C, shard: int) -> C:
    """The same settings for the queue of another shard."""
    if shard == 0:
        return config
    data, manifest = (shard_path(path, shard) for path in (config.data_path_prefix, config.manifest_path))
    return replace(config, data_path_prefix=data, manifest_path=manifest)


def _jump(key: int, buckets: int) -> int:
    """Jump consistent hash (Lamping and Veach): one more bucket moves one key in so many, and only to the new one."""
    found, candidate = -1, 0
    while candidate < buckets:
        found = candidate
        key = (key * _JUMP_MULTIPLIER + 1) & _MASK
        candidate = int((found + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return found
