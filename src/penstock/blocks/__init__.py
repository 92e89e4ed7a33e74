"""Block-valued tables on the key-value store: what every store of blocks is made of, whatever its blocks hold."""

from penstock.blocks.cache import BlockCache, Sized
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
from penstock.blocks.refusals import ChangeHandle, ChangeReceipt, ChangeRefusals, SourcedChange
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
