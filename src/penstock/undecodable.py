"""What bytes that are no JSON or MessagePack raise when they are decoded.

A decoder of msgspec has an error of its own for a wrong shape, but leaves bytes that are no UTF-8, and values nested
deeper than Python's stack, to Python's errors. Whoever decodes what a disk, a store or a sender holds catches all three:

    try:
        return msgspec.json.decode(data, type=Settings)
    except UNDECODABLE as error:
        raise Corrupt(...) from error
"""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["UNDECODABLE"]

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
