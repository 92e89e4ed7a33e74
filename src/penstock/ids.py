"""The only door to randomness, and the identifiers made from it.

Rooms take an `Entropy` for jitter, nonces and names, so that a simulation replays from one seed.
A ULID is 26 characters of Crockford base 32: 48 bits of milliseconds, then 80 random bits. Its text
order is its time order, and the time can be read back, which garbage collectors rely on.
"""

from __future__ import annotations

import os
import random
import re
from typing import Final, Protocol

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import InvalidInput

__all__ = ["SYSTEM_ENTROPY", "Entropy", "SystemEntropy", "UlidFactory", "is_ulid", "ulid", "ulid_time_ms"]

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES: Final = {character: value for value, character in enumerate(_ALPHABET)}
_LENGTH: Final = 26
_RANDOM_BITS: Final = 80
# The first characters hold the time. The very first stands for three bits, so all 26 fit 128.
_TIME_LENGTH: Final = 10
_CANONICAL: Final = re.compile(f"[0-7][{_ALPHABET}]{{{_LENGTH - 1}}}")
_TIME_LIMIT_MS: Final = 1 << 48


class Entropy(Protocol):
    """Where random bytes and jitter come from."""

    def token(self, size: int) -> bytes:
        """`size` random bytes, fit for identities that must never collide."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """A number between `low` and `high`, fit for jitter."""
        ...


class SystemEntropy:
    """The operating system's randomness."""

    def __init__(self) -> None:
        self._jitter = random.Random()

    def token(self, size: int) -> bytes:
        return os.urandom(size)

    def uniform(self, low: float, high: float) -> float:
        return self._jitter.uniform(low, high)


SYSTEM_ENTROPY = SystemEntropy()


def ulid(time_ms: int, entropy: Entropy = SYSTEM_ENTROPY) -> str:
    """A ULID for the given millisecond."""
    return _encode(_time_bits(time_ms) | int.from_bytes(entropy.token(10), "big"))


def is_ulid(text: str) -> bool:
    """Whether `text` is a ULID in canonical (upper-case) form that fits 128 bits."""
    return _CANONICAL.fullmatch(text) is not None


def ulid_time_ms(text: str) -> int:
    """The millisecond a ULID was made in."""
    if not is_ulid(text):
        raise InvalidInput(f"not a ULID: {text!r}", "it must be 26 characters of Crockford base 32")
    time_ms = 0
    for character in text[:_TIME_LENGTH]:
        time_ms = time_ms << 5 | _VALUES[character]
    return time_ms


class UlidFactory:
    """ULIDs that strictly increase within one process, even inside a millisecond or when time steps back."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, entropy: Entropy = SYSTEM_ENTROPY) -> None:
        self._clock = clock
        self._entropy = entropy
        self._last = -1

    def next(self) -> str:
        fresh = _time_bits(self._clock.now_ms()) | int.from_bytes(self._entropy.token(10), "big")
        self._last = max(fresh, self._last + 1)
        return _encode(self._last)


def _time_bits(time_ms: int) -> int:
    if not 0 <= time_ms < _TIME_LIMIT_MS:
        raise InvalidInput(f"time out of a ULID's range: {time_ms} ms", "it must fit 48 bits")
    return time_ms << _RANDOM_BITS


def _encode(number: int) -> str:
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(5 * (_LENGTH - 1), -1, -5))
