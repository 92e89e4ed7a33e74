"""An ordered key-value store on object storage, built on SlateDB."""

from penstock.keyvalue.config import KeyValueConfig
from penstock.keyvalue.damage import get_each
from penstock.keyvalue.memory import MemoryFollower, MemoryKeyValue, MemoryVolume
from penstock.keyvalue.open import open_follower, open_keyvalue
from penstock.keyvalue.port import DurabilityHandle, Entry, KeyValue, Reader, Snapshot, WriteBatch, prefix_end

__all__ = [
    "DurabilityHandle",
    "Entry",
    "KeyValue",
    "KeyValueConfig",
    "MemoryFollower",
    "MemoryKeyValue",
    "MemoryVolume",
    "Reader",
    "Snapshot",
    "WriteBatch",
    "get_each",
    "open_follower",
    "open_keyvalue",
    "prefix_end",
]
