"""Which shards there are and which one owns a table: a tree under compare-and-swap, so that every process agrees.

A key is routed by rendezvous hashing over the shards at the top, then over the children of the winner as long
as it has been split. So a split moves only the keys of the shard that is split. Without the object there is
one shard, the root, whose head is `metadata/catalog.json`. Format page: docs/format/catalog.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, Final

import msgspec
import xxhash

from penstock.catalog.format.members import check_seal, parsed, sealed, unparsed
from penstock.errors import Corrupt, InvalidInput, Unsupported
from penstock.objects import Token
from penstock.undecodable import UNDECODABLE

__all__ = ["ROOT", "ShardMap", "ShardMapFormat", "ShardNode", "ShardState", "owner_of"]

# The shard of a catalog that was never split.
ROOT: Final = ""
VERSION: Final = 1
WRITERS_MAX: Final = 128


class ShardState(StrEnum):
    ACTIVE = "active"
    # Its children are being filled; until they are, it answers.
    SPLITTING = "splitting"
    SPLIT = "split"


class ShardNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One shard, and those it was split into."""

    id: str
    state: ShardState = ShardState.ACTIVE
    children: tuple[ShardNode, ...] = ()
    # Members that a later release wrote; kept, and never read here.
    extra: dict[str, Any] = {}

    def find(self, shard: str) -> ShardNode | None:
        if self.id == shard:
            return self
        return next((found for child in self.children if (found := child.find(shard)) is not None), None)

    def readable(self) -> Iterator[str]:
        """The shards that together hold every file below this one, each once."""
        if self.state is ShardState.SPLIT:
            for child in self.children:
                yield from child.readable()
        else:
            yield self.id

    def ids(self) -> Iterator[str]:
        yield self.id
        for child in self.children:
            yield from child.ids()

    def replaced(self, node: ShardNode) -> ShardNode:
        if self.id == node.id:
            return node
        return msgspec.structs.replace(self, children=tuple(child.replaced(node) for child in self.children))


class ShardMap(msgspec.Struct, frozen=True, kw_only=True):
    """The whole tree. `generation` counts its changes."""

    version: int = VERSION
    generation: int = 0
    root: ShardNode = ShardNode(id=ROOT)
    commits: dict[str, int] = {}
    extra: dict[str, Any] = {}

    def shards(self) -> list[str]:
        return list(self.root.readable())

    def shard_of(self, tenant: str, table: str) -> str:
        node = self.root
        while node.state is ShardState.SPLIT:
            chosen = owner_of(tenant, table, [child.id for child in node.children])
            node = next(child for child in node.children if child.id == chosen)
        return node.id

    def find(self, shard: str) -> ShardNode:
        found = self.root.find(shard)
        if found is None:
            known = ", ".join(name or "(root)" for name in self.shards())
            raise InvalidInput(f"there is no shard {shard!r}", f"the catalog lists {known}")
        return found

    def lineage(self, shard: str) -> list[str]:
        """The shard and those it came from, the nearest first."""

        def walk(node: ShardNode, above: list[str]) -> list[str] | None:
            trail = [node.id, *above]
            if node.id == shard:
                return trail
            return next((found for child in node.children if (found := walk(child, trail)) is not None), None)

        return walk(self.root, []) or [shard]

    def changed(self, node: ShardNode) -> ShardMap:
        return msgspec.structs.replace(self, generation=self.generation + 1, root=self.root.replaced(node))


def owner_of(tenant: str, table: str, shards: Iterable[str]) -> str:
    """Rendezvous hashing: the shard with the highest XXH3 of its id and the key; of two equal, the later id."""
    key = f"\0{tenant}\0{table}"
    return max(shards, key=lambda shard: (xxhash.xxh3_64_intdigest(f"{shard}{key}".encode()), shard))


class ShardMapFormat:
    """How a register reads and writes the map. Its proof is the writer's number, as in a head; it has no fence."""

    def empty(self) -> ShardMap:
        return _NO_MAP

    def decode(self, body: bytes) -> ShardMap:
        try:
            members = msgspec.json.decode(body, type=dict[str, Any])
            version = msgspec.convert(members.get("version"), int)
            if version != VERSION:
                raise Unsupported(f"shard map of version {version}", f"this release reads version {VERSION}")
            check_seal(body, "the shard map")
            del members["crc32c"]
            found = parsed({**members, "root": _node(members.get("root"))}, ShardMap)
        except UNDECODABLE as error:
            raise Corrupt("the shard map is damaged", str(error)) from error
        ids = list(found.root.ids())
        if len(set(ids)) < len(ids):
            raise Corrupt("the shard map is damaged", "a shard is listed twice")
        return found

    def encode(self, value: ShardMap) -> bytes:
        return sealed(msgspec.json.encode({**unparsed(value), "root": _node_json(value.root)})[:-1])

    def fence(self, value: ShardMap) -> int:
        return 0

    def with_fence(self, value: ShardMap, fence: int) -> ShardMap:
        return value

    def next_fence(self, fence: int) -> int:
        return fence

    def stamp(self, value: ShardMap, token: Token) -> ShardMap:
        others = [(writer, number) for writer, number in value.commits.items() if writer != token.writer]
        commits: Any = dict([*others, (token.writer, token.number)][-WRITERS_MAX:])
        return msgspec.structs.replace(value, commits=commits)

    def landed(self, value: ShardMap, token: Token) -> bool | None:
        number = value.commits.get(token.writer)
        if number is None:
            return None if len(value.commits) >= WRITERS_MAX else False
        return None if number > token.number else number == token.number


def _node(json: Any) -> ShardNode:
    members = msgspec.convert(json, dict[str, Any])
    children = msgspec.convert(members.get("children", []), list[Any])
    return parsed({**members, "children": tuple(_node(child) for child in children)}, ShardNode)


def _node_json(node: ShardNode) -> dict[str, Any]:
    json = unparsed(node)
    return {**json, "children": [_node_json(child) for child in node.children]} if node.children else json


_NO_MAP: Final = ShardMap()
