"""Splitting a shard, resumable at every step, with readers going on and writers waiting for seconds at most.

```
1  map    the shard is splitting, into these children      readers and writers: the parent
2  head   the parent is closed                             readers: the parent; writers wait
3  heads  each child is made from the closed parent        (nobody looks at them yet)
4  map    the shard is split                               readers and writers: the children
5  head   the parent is emptied, marked moved              (whoever still asks it is sent to the map)
```
Step 4 is the one moment of change. A split that died is taken up by the next call: a step that was done
changes nothing, and children made from a closed parent are the same whoever makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from penstock.catalog.catalog import Catalog
from penstock.catalog.change.division import Child, closed, divided, moved
from penstock.catalog.change.lookup import Blocks, SegmentsNeeded
from penstock.catalog.format.head import CatalogHead
from penstock.catalog.format.layout import check_shard_id
from penstock.catalog.format.shard_map import ShardMap, ShardNode, ShardState
from penstock.errors import InvalidInput, Unavailable, Unsupported
from penstock.ids import ulid

__all__ = ["split_shard"]


async def split_shard(catalog: Catalog, shard: str, children: Sequence[str]) -> ShardMap:
    """Split a shard into children, or finish a split of it that was begun; the map afterwards."""
    if catalog.config.format < 3:
        raise Unsupported("the catalog cannot be split", "format 2 is one object", "set format = 3")
    names = [check_shard_id(name) for name in children]
    node = await _begun(catalog, shard, names)
    if node.state is ShardState.SPLITTING:
        parent = await catalog.shard(shard).commit(lambda head, _: closed(head), "split")
        await _fill(catalog, parent, [child.id for child in node.children])
        await catalog.shard_map.update(lambda found: _with_state(found, shard, ShardState.SPLIT))
        await catalog.refresh_map()
    now_ms = catalog.clock.now_ms()
    await catalog.shard(shard).commit(lambda head, _: moved(head, now_ms), "split")
    await catalog.write_index()
    return catalog.map


async def _begun(catalog: Catalog, shard: str, names: list[str]) -> ShardNode:
    """The shard with its children in the map; those that an earlier call put there stay."""

    def change(found: ShardMap) -> ShardMap:
        node = found.find(shard)
        if node.state is not ShardState.ACTIVE:
            return found
        known = set(found.root.ids())
        if len(names) < 2 or len(set(names)) < len(names) or known.intersection(names):
            raise InvalidInput(
                f"shard {shard or 'root'!r} cannot be split into {names}", "two or more new names are needed"
            )
        below = tuple(ShardNode(id=name) for name in names)
        return found.changed(msgspec.structs.replace(node, state=ShardState.SPLITTING, children=below))

    after = await catalog.shard_map.update(change)
    await catalog.refresh_map()
    return after.find(shard)


def _with_state(found: ShardMap, shard: str, state: ShardState) -> ShardMap:
    node = found.find(shard)
    if node.state is state:
        return found
    return found.changed(msgspec.structs.replace(node, state=state))


async def _fill(catalog: Catalog, parent: CatalogHead, names: Sequence[str]) -> None:
    missing = [name for name in names if (await catalog.shard(name).fresh()).is_absent]
    if not missing:
        return
    made = await _divided(catalog, parent, names)
    for name in missing:
        began = catalog.clock.monotonic()
        for entry, body, block in made[name].objects:
            await catalog.segments.upload(entry, body, block)
        await catalog.shard(name).commit(_creation(catalog, made[name], began), "split")


def _creation(catalog: Catalog, child: Child, began: float) -> Callable[[CatalogHead, Blocks], CatalogHead]:
    def change(head: CatalogHead, _: Blocks) -> CatalogHead:
        if not head.is_absent:
            return head
        # A process that stood still: vacuum may have taken the objects by now.
        if catalog.clock.monotonic() - began > catalog.config.age_floor_seconds / 2:
            raise Unavailable(
                "a child of the split was not made", "its segments are too old to be referenced", "call again"
            )
        return child.head

    return change


async def _divided(catalog: Catalog, parent: CatalogHead, names: Sequence[str]) -> dict[str, Child]:
    folders = {name: catalog.layout.folder(name) for name in names}
    nonce, rows_max = ulid(catalog.clock.now_ms(), catalog.entropy), catalog.config.segment_rows_max
    blocks: Blocks = {}
    while True:
        try:
            return divided(parent, names, blocks, folders, nonce, rows_max)
        except SegmentsNeeded as needed:
            blocks = {**blocks, **await catalog.shard(parent.shard).load(needed.entries)}
