"""Messages over two pipes: eight bytes of length, then that many bytes.

The side that holds our secrets trusts nothing about the other: one deadline covers the whole exchange, sending
included, and the length that is announced is checked before a byte of it is kept. The confined side may simply block.
"""

from __future__ import annotations

import os
import selectors
from typing import Final

from penstock.clock import SYSTEM_CLOCK, Deadline
from penstock.errors import AtCapacity, DeadlineExceeded

__all__ = ["Exchange", "receive", "send"]

_LENGTH_BYTES: Final = 8
_READ_BYTES: Final = 1 << 20


class Exchange:
    """The trusting side's end of two pipes, which it makes non-blocking. Closing is the owner's."""

    def __init__(self, outbound: int, inbound: int) -> None:
        self._outbound, self._inbound = outbound, inbound
        for descriptor in (outbound, inbound):
            os.set_blocking(descriptor, False)
        self._read = bytearray()

    @property
    def quiet(self) -> bool:
        """Whether nothing came that nobody asked for."""
        return not self._read

    def send_and_receive(self, message: bytes, *, seconds: float, bytes_max: int, messages: int = 1) -> list[bytes]:
        """Send one message and take so many in return. `EOFError` when the other side goes away."""
        deadline = Deadline(SYSTEM_CLOCK, seconds)
        waiting = memoryview(len(message).to_bytes(_LENGTH_BYTES, "big") + message)
        taken: list[bytes] = []
        with selectors.DefaultSelector() as ready:
            ready.register(self._inbound, selectors.EVENT_READ)
            ready.register(self._outbound, selectors.EVENT_WRITE)
            while len(taken) < messages:
                if deadline.passed:
                    raise DeadlineExceeded("a parser process does not answer", f"not within {seconds:g} s")
                for key, _ in ready.select(deadline.remaining):
                    if key.fd == self._inbound:
                        self._take(taken, bytes_max, messages)
                        continue
                    waiting = waiting[self._give(waiting) :]
                    if not waiting:
                        ready.unregister(self._outbound)
        return taken

    def _give(self, waiting: memoryview) -> int:
        try:
            return os.write(self._outbound, waiting)
        except BlockingIOError:
            return 0
        except BrokenPipeError as error:
            raise EOFError from error

    def _take(self, taken: list[bytes], bytes_max: int, messages: int) -> None:
        try:
            some = os.read(self._inbound, _READ_BYTES)
        except BlockingIOError:
            return
        if not some:
            raise EOFError
        self._read += some
        while len(taken) < messages and (message := self._next(bytes_max)) is not None:
            taken.append(message)

    def _next(self, bytes_max: int) -> bytes | None:
        if len(self._read) < _LENGTH_BYTES:
            return None
        length = int.from_bytes(self._read[:_LENGTH_BYTES], "big")
        if length > bytes_max:
            raise AtCapacity(f"a message of {length} bytes is announced", f"the limit is {bytes_max}")
        end = _LENGTH_BYTES + length
        if len(self._read) < end:
            return None
        message = bytes(self._read[_LENGTH_BYTES:end])
        del self._read[:end]
        return message


def receive(descriptor: int) -> bytes:
    """The next message, however long it takes. `EOFError` when no more will come."""
    return _exactly(descriptor, int.from_bytes(_exactly(descriptor, _LENGTH_BYTES), "big"))


def send(descriptor: int, message: bytes) -> None:
    """One message, however long it takes."""
    waiting = memoryview(len(message).to_bytes(_LENGTH_BYTES, "big") + message)
    while waiting:
        waiting = waiting[os.write(descriptor, waiting) :]


def _exactly(descriptor: int, size: int) -> bytes:
    read = bytearray()
    while len(read) < size:
        some = os.read(descriptor, min(_READ_BYTES, size - len(read)))
        if not some:
            raise EOFError
        read += some
    return bytes(read)
