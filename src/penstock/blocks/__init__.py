"""Block-valued tables on the key-value store: what every store of blocks is made of, whatever its blocks hold.

Names are imported when they are first asked for: a reader loads nothing that writes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.blocks.cache import BlockCache, Sized
    from penstock.blocks.change_handle import ChangeHandle
    from penstock.blocks.directory import EMPTY, FRAGMENT, Directory
    from penstock.blocks.draft import BlockDraft, Drafted
    from penstock.blocks.envelope import Envelope, RecordKind
    from penstock.blocks.flush import BlockFlushHandler, FlushPlan, FlushPlanner, StateChanges, fill
    from penstock.blocks.follower import FollowedStates, StateReading
    from penstock.blocks.format import Block, BlockBody, KeyedBlock, StoreFormat
    from penstock.blocks.head import StoreHeader, read_head, read_store_record, read_under_head
    from penstock.blocks.keeper import KeptState, UpkeepKeeper, UpkeepPlan
    from penstock.blocks.keys import (
        STORE,
        Address,
        Shelf,
        check_name,
        fragment_key,
        fragments_prefix,
        head_key,
        pages_prefix,
    )
    from penstock.blocks.layout import file, neighbours, recut, restack, stack
    from penstock.blocks.pages import Operations, StoredDirectories, decode_page, page_operations, read_directories
    from penstock.blocks.positions import SourcePositions, check_position, is_stored, position_operation, read_positions
    from penstock.blocks.reader import BlockReader, Damage, StateMoved
    from penstock.blocks.refusals import ChangeReceipt, ChangeRefusals, SourcedChange
    from penstock.blocks.shelves import BlockHead, Shelves, all_keys
    from penstock.blocks.single_flight import SingleFlights
    from penstock.blocks.snapshot import StoreSnapshot

__all__ = [
    "EMPTY",
    "FRAGMENT",
    "STORE",
    "Address",
    "Block",
    "BlockBody",
    "BlockCache",
    "BlockDraft",
    "BlockFlushHandler",
    "BlockHead",
    "BlockReader",
    "ChangeHandle",
    "ChangeReceipt",
    "ChangeRefusals",
    "Damage",
    "Directory",
    "Drafted",
    "Envelope",
    "FlushPlan",
    "FlushPlanner",
    "FollowedStates",
    "KeptState",
    "KeyedBlock",
    "Operations",
    "RecordKind",
    "Shelf",
    "Shelves",
    "SingleFlights",
    "Sized",
    "SourcePositions",
    "SourcedChange",
    "StateChanges",
    "StateMoved",
    "StateReading",
    "StoreFormat",
    "StoreHeader",
    "StoreSnapshot",
    "StoredDirectories",
    "UpkeepKeeper",
    "UpkeepPlan",
    "all_keys",
    "check_name",
    "check_position",
    "decode_page",
    "file",
    "fill",
    "fragment_key",
    "fragments_prefix",
    "head_key",
    "is_stored",
    "neighbours",
    "page_operations",
    "pages_prefix",
    "position_operation",
    "read_directories",
    "read_head",
    "read_positions",
    "read_store_record",
    "read_under_head",
    "recut",
    "restack",
    "stack",
]

# The module of each name.
_HOMES: Final = {
    "cache": (
        "BlockCache",
        "Sized",
    ),
    "directory": (
        "EMPTY",
        "FRAGMENT",
        "Directory",
    ),
    "draft": (
        "BlockDraft",
        "Drafted",
    ),
    "envelope": (
        "Envelope",
        "RecordKind",
    ),
    "flush": (
        "BlockFlushHandler",
        "FlushPlan",
        "FlushPlanner",
        "StateChanges",
        "fill",
    ),
    "follower": (
        "FollowedStates",
        "StateReading",
    ),
    "format": (
        "Block",
        "BlockBody",
        "KeyedBlock",
        "StoreFormat",
    ),
    "head": (
        "StoreHeader",
        "read_head",
        "read_store_record",
        "read_under_head",
    ),
    "keeper": (
        "KeptState",
        "UpkeepKeeper",
        "UpkeepPlan",
    ),
    "keys": (
        "STORE",
        "Address",
        "Shelf",
        "check_name",
        "fragment_key",
        "fragments_prefix",
        "head_key",
        "pages_prefix",
    ),
    "layout": (
        "file",
        "neighbours",
        "recut",
        "restack",
        "stack",
    ),
    "pages": (
        "Operations",
        "StoredDirectories",
        "decode_page",
        "page_operations",
        "read_directories",
    ),
    "positions": (
        "SourcePositions",
        "check_position",
        "is_stored",
        "position_operation",
        "read_positions",
    ),
    "reader": (
        "BlockReader",
        "Damage",
        "StateMoved",
    ),
    "change_handle": ("ChangeHandle",),
    "refusals": (
        "ChangeReceipt",
        "ChangeRefusals",
        "SourcedChange",
    ),
    "shelves": (
        "BlockHead",
        "Shelves",
        "all_keys",
    ),
    "single_flight": ("SingleFlights",),
    "snapshot": ("StoreSnapshot",),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """The modules behind the list are imported when a name of theirs is first asked for."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
