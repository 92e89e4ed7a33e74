"""Block-valued tables on the key-value store, shared by every store of blocks.

Names are imported on first use: a reader loads nothing that writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.blocks.format.directory import EMPTY, FRAGMENT, Directory
    from penstock.blocks.format.envelope import Envelope, RecordKind
    from penstock.blocks.format.keys import (
        STORE,
        Address,
        Shelf,
        check_name,
        fragment_key,
        fragments_prefix,
        head_key,
        pages_prefix,
    )
    from penstock.blocks.format.shelves import BlockHead, Shelves, all_keys
    from penstock.blocks.format.store_format import Block, BlockBody, KeyedBlock, StoreFormat
    from penstock.blocks.read.cache import BlockCache, Sized
    from penstock.blocks.read.follower import FollowedStates, StateReading
    from penstock.blocks.read.head import StoreHeader, read_head, read_store_record, read_under_head
    from penstock.blocks.read.pages import Operations, StoredDirectories, decode_page, page_operations, read_directories
    from penstock.blocks.read.positions import (
        SourcePositions,
        check_position,
        is_stored,
        position_operation,
        read_positions,
    )
    from penstock.blocks.read.reader import BlockReader, Damage, StateMoved
    from penstock.blocks.read.records import StoreRecords
    from penstock.blocks.read.single_flight import SingleFlights
    from penstock.blocks.read.snapshot import StoreSnapshot
    from penstock.blocks.read.store_reader import StoreReader, open_store_reader
    from penstock.blocks.write.change_handle import ChangeHandle
    from penstock.blocks.write.draft import BlockDraft, Drafted
    from penstock.blocks.write.flush import BlockFlushHandler, FlushPlan, FlushPlanner, StateChanges, fill
    from penstock.blocks.write.keeper import KeptState, UpkeepKeeper, UpkeepPlan
    from penstock.blocks.write.layout import file, neighbours, recut, restack, stack
    from penstock.blocks.write.refusals import ChangeReceipt, ChangeRefusals, SourcedChange
    from penstock.blocks.write.store_writer import StoreWriter, first_moment

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
    "StoreReader",
    "StoreRecords",
    "StoreSnapshot",
    "StoreWriter",
    "StoredDirectories",
    "UpkeepKeeper",
    "UpkeepPlan",
    "all_keys",
    "check_name",
    "check_position",
    "decode_page",
    "file",
    "fill",
    "first_moment",
    "fragment_key",
    "fragments_prefix",
    "head_key",
    "is_stored",
    "neighbours",
    "open_store_reader",
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

__getattr__ = lazy_names(
    __name__,
    {
        "read.cache": (
            "BlockCache",
            "Sized",
        ),
        "format.directory": (
            "EMPTY",
            "FRAGMENT",
            "Directory",
        ),
        "write.draft": (
            "BlockDraft",
            "Drafted",
        ),
        "format.envelope": (
            "Envelope",
            "RecordKind",
        ),
        "write.flush": (
            "BlockFlushHandler",
            "FlushPlan",
            "FlushPlanner",
            "StateChanges",
            "fill",
        ),
        "read.follower": (
            "FollowedStates",
            "StateReading",
        ),
        "format.store_format": (
            "Block",
            "BlockBody",
            "KeyedBlock",
            "StoreFormat",
        ),
        "read.head": (
            "StoreHeader",
            "read_head",
            "read_store_record",
            "read_under_head",
        ),
        "write.keeper": (
            "KeptState",
            "UpkeepKeeper",
            "UpkeepPlan",
        ),
        "format.keys": (
            "STORE",
            "Address",
            "Shelf",
            "check_name",
            "fragment_key",
            "fragments_prefix",
            "head_key",
            "pages_prefix",
        ),
        "write.layout": (
            "file",
            "neighbours",
            "recut",
            "restack",
            "stack",
        ),
        "read.pages": (
            "Operations",
            "StoredDirectories",
            "decode_page",
            "page_operations",
            "read_directories",
        ),
        "read.positions": (
            "SourcePositions",
            "check_position",
            "is_stored",
            "position_operation",
            "read_positions",
        ),
        "read.reader": (
            "BlockReader",
            "Damage",
            "StateMoved",
        ),
        "write.change_handle": ("ChangeHandle",),
        "write.refusals": (
            "ChangeReceipt",
            "ChangeRefusals",
            "SourcedChange",
        ),
        "format.shelves": (
            "BlockHead",
            "Shelves",
            "all_keys",
        ),
        "read.single_flight": ("SingleFlights",),
        "read.snapshot": ("StoreSnapshot",),
        "write.store_writer": (
            "StoreWriter",
            "first_moment",
        ),
        "read.store_reader": (
            "StoreReader",
            "open_store_reader",
        ),
        "read.records": ("StoreRecords",),
    },
)
