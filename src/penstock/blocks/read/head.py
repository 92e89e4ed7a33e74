"""Records of a store: its own, and the heads beneath its prefixes, which say that what is read is of one moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from penstock.blocks.format.envelope import RecordKind
from penstock.blocks.format.keys import STORE, head_key
from penstock.blocks.format.store_format import StoreFormat
from penstock.blocks.read.reader import BlockReader, StateMoved
from penstock.errors import Corrupt, Unavailable
from penstock.keyvalue import Reader

__all__ = ["StoreHeader", "read_head", "read_store_record", "read_under_head"]

# A follower polls about once a second and reads a state in milliseconds: losing this race so often is no chance.
_READ_ATTEMPTS: Final = 10


class StoreHeader(msgspec.Struct, frozen=True):
    """What the record of every store begins with. It is the first key that is read and the last that is doubted."""

    format: int


H = TypeVar("H", bound=msgspec.Struct)
R = TypeVar("R", bound=StoreHeader)
S = TypeVar("S")


async def read_store_record(reader: Reader, format: StoreFormat, shape: type[R]) -> R | None:
    """The store's own record; None if there is none. `Unsupported` if a later Penstock wrote it."""
    value = await reader.get(STORE)
    if value is None:
        return None
    record = format.decode_record(RecordKind.STORE, value, shape, "the record of the store")
    if record.format > format.envelope.version:
        raise format.envelope.newer(record.format)
    return record


async def read_head(reader: Reader, format: StoreFormat, prefix: bytes, name: object, shape: type[H]) -> H | None:
    """The head beneath a prefix, if there is one."""
    value = await reader.get(head_key(prefix))
    return None if value is None else format.decode_record(RecordKind.HEAD, value, shape, f"the head of {name}")


async def read_under_head(
    blocks: BlockReader, prefix: bytes, name: object, shape: type[H], read: Callable[[H], Awaitable[S]]
) -> S:
    """What `read` makes of a head, all of one moment.

    A follower's view may advance between two reads: a head that is still the same proves that it did not. Where it did,
    what was read may not fit together, and whatever that raised says nothing.
    """

    async def is_of_one_moment(head: H) -> bool:
        return not blocks.moving or await read_head(blocks.reader, blocks.format, prefix, name, shape) == head

    for _ in range(_READ_ATTEMPTS):
        head = await read_head(blocks.reader, blocks.format, prefix, name, shape)
        if head is None:
            raise Corrupt(f"{name} has no head", "it is listed, but its head is missing")
        try:
            state = await read(head)
        except StateMoved:
            continue
        except Exception:
            if await is_of_one_moment(head):
                raise
            continue
        if await is_of_one_moment(head):
            return state
    raise Unavailable(f"{name} changes faster than it can be read", "", "read again, or poll less often")
