"""The ordered key-value port over SlateDB."""

from penstock.keyvalue.damage import get_each
from penstock.keyvalue.memory import MemoryFollower, MemoryKeyValue, MemoryVolume
from penstock.keyvalue.open import open_follower, open_keyvalue
from penstock.keyvalue.port import Entry, KeyValue, Reader, Snapshot, WriteBatch, WriteHandle, prefix_end

__all__ = [
    "Entry",
    "KeyValue",
    "MemoryFollower",
    "MemoryKeyValue",
    "MemoryVolume",
    "Reader",
    "Snapshot",
    "WriteBatch",
    "WriteHandle",
    "get_each",
    "open_follower",
    "open_keyvalue",
    "prefix_end",
]
