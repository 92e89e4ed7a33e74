"""How a register's value lies in bytes, and where the proof of a commit is kept in them.

Rooms with a wire format of their own (the queue's manifest, the catalog's head) implement `RegisterFormat`
over it; `stamp.StampedFormat` serves everybody else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

__all__ = ["RegisterFormat", "Token"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Token:
    """Names one attempt of one register: `writer` is unique to the instance, `number` grows with each attempt."""

    writer: str
    number: int


class RegisterFormat(Protocol[T]):
    """Values are immutable: they are kept, compared by identity, and shared between callers."""

    def empty(self) -> T:
        """The value of an object that does not exist yet."""
        ...

    def decode(self, body: bytes) -> T:
        """Raise `Corrupt` or `Unsupported`; the register adds the key and the store to the error."""
        ...

    def encode(self, value: T) -> bytes:
        """Bytes this object never had before: some stores make the version from a hash of the content."""
        ...

    def fence(self, value: T) -> int: ...

    def with_fence(self, value: T, fence: int) -> T: ...

    def next_fence(self, fence: int) -> int: ...

    def stamp(self, value: T, token: Token) -> T:
        """The value with the proof in it. A format whose proof lies in the change itself returns it as it is."""
        ...

    def landed(self, value: T, token: Token) -> bool | None:
        """Whether the attempt of `token` is in this value's past; None when the body can no longer tell."""
        ...
