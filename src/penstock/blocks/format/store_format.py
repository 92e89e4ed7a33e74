"""What a store brings: its families of blocks, how each is written, and the envelope around all of them.

A `Block` knows its own body and nothing of keys, envelopes or files. It can be cut to some of its rows and merged with
the other fragments of its bucket, oldest first; that is all the machinery of this room asks of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol, Self, TypeVar

import msgspec

from penstock.blocks.format.arrays import Array, Cut, Words
from penstock.blocks.format.envelope import Envelope
from penstock.blocks.format.keys import Address, Shelf, split_fragment_key, split_page_key
from penstock.errors import Corrupt
from penstock.undecodable import UNDECODABLE

__all__ = ["Block", "BlockBody", "KeyedBlock", "StoreFormat"]

R = TypeVar("R", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class BlockBody:
    """What a block writes: parts that follow each other, and whether they are worth packing with zstd."""

    parts: tuple[bytes | Array, ...]
    compress: bool = False


class Block(Protocol):
    """The decoded rows of a bucket, or of one fragment of it. Never changed once it is made."""

    @property
    def size_bytes(self) -> int:
        """Memory held."""
        ...

    def __len__(self) -> int: ...

    def take(self, rows: Cut, /) -> Self:
        """Some of the rows: a mask, positions, or a slice, which copies nothing."""
        ...

    def encode(self) -> BlockBody: ...

    @classmethod
    def decode(cls, body: memoryview, /) -> Self:
        """The block of a body that is whole as its checksum tells; `Corrupt` if it makes no sense all the same."""
        ...

    @classmethod
    def merge(cls, parts: Sequence[Self], /) -> Self:
        """The rows of fragments given oldest first; at least one."""
        ...


class KeyedBlock(Block, Protocol):
    """A block whose rows are filed by a 64-bit key: a hash, or numbers packed so that their order is the key's."""

    @property
    def keys(self) -> Words:
        """The key of every row, which decides on its bucket."""
        ...


B = TypeVar("B", bound=Block)


@dataclass(frozen=True, eq=False, slots=True)
class StoreFormat:
    """The format of one kind of store."""

    envelope: Envelope
    # Every family a store has. The number is in keys and in envelopes, below 100, and never changes its meaning.
    families: type[IntEnum]
    blocks: Mapping[Any, type[Block]]
    # The store's name in metrics and events, and the command that repairs one.
    label: str
    repair: str
    # Families whose blocks are packed: how many bytes in memory one stored byte becomes, about.
    packing: Mapping[Any, int] = field(default_factory=dict)

    def stored_bytes(self, family: IntEnum, block: Block) -> int:
        """About how many bytes a block will have in the store: what buckets and fragments are measured by."""
        return -(-block.size_bytes // self.packing.get(family, 1))

    def encode(self, family: IntEnum, block: Block) -> bytes:
        """The sealed value of a fragment."""
        body = block.encode()
        return self.envelope.seal(family, *body.parts, compress=body.compress)

    def decode(self, family: IntEnum, value: bytes, kind: type[B]) -> B:
        """The block in a fragment's value."""
        return kind.decode(self.envelope.unseal(family, value))

    def block(self, family: IntEnum, value: bytes) -> Block:
        """The block in a fragment's value, whatever its family holds."""
        return self.decode(family, value, self.blocks[family])

    def encode_record(self, kind: int, record: msgspec.Struct) -> bytes:
        return self.envelope.seal(kind, msgspec.json.encode(record))

    def decode_record(self, kind: int, value: bytes, shape: type[R], named: str = "a record") -> R:
        """A record; fields that it does not know are ignored."""
        try:
            return msgspec.json.decode(self.envelope.unseal(kind, value), type=shape)
        except (*UNDECODABLE, Corrupt) as error:
            raise Corrupt(f"{named} cannot be read", str(error), "restore it") from error

    def address(self, key: bytes) -> Address:
        """The fragment that lies under a key."""
        family, column, low, serial = split_fragment_key(key)
        return Address(Shelf(self.families(family), column), low, serial)

    def page(self, key: bytes) -> tuple[Shelf, int]:
        """The shelf and the lowest key of the directory page that lies under a key."""
        family, column, low = split_page_key(key)
        return Shelf(self.families(family), column), low
