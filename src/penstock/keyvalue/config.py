"""The bounds of a key-value store, for whoever configures one; code gives them to `open_keyvalue` one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from penstock.errors import InvalidInput

__all__ = ["CACHE_BYTES_MAX", "UNFLUSHED_BYTES_MAX", "KeyValueConfig"]

# Written, but in no sorted file yet: past this a write waits. Four tables of 64 MB.
UNFLUSHED_BYTES_MAX: Final = 256 << 20
# Blocks kept in memory for point reads.
CACHE_BYTES_MAX: Final = 128 << 20


@dataclass(frozen=True, slots=True)
class KeyValueConfig:
    """Memory and retries of a key-value store. None uses the default for the kind of store."""

    # Time that a write waits for others to share its log object, in milliseconds. Default: 5 in a directory, 100
    # in a bucket.
    flush_interval_ms: float | None = None
    # Maximum bytes written and not yet in a sorted file. Above it writes wait.
    unflushed_bytes_max: int = UNFLUSHED_BYTES_MAX
    # Memory for the blocks of point reads, in bytes.
    cache_bytes_max: int = CACHE_BYTES_MAX
    # Number of retries of a failed request, one second apart. Default: 6 in a directory, 20 in a bucket.
    retries_max: int | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidInput(f"{name} = {value!r}", "it must be more than zero", "omit it to use the default")

    @property
    def writing(self) -> dict[str, Any]:
        """For `open_keyvalue`."""
        return {
            "flush_interval_ms": self.flush_interval_ms,
            "unflushed_bytes_max": self.unflushed_bytes_max,
            **self.reading,
        }

    @property
    def reading(self) -> dict[str, Any]:
        """For `open_follower`."""
        return {"cache_bytes_max": self.cache_bytes_max, "retries_max": self.retries_max}
