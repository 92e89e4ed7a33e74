"""Where batch objects lie: `{data_path_prefix}/{ULID}.batch`. The name tells when it was given."""

from __future__ import annotations

from typing import Final

from penstock.ids import is_ulid, ulid_time_ms

__all__ = ["batch_location", "batch_time_ms"]

_SUFFIX: Final = ".batch"


def batch_location(data_path_prefix: str, ulid: str) -> str:
    return f"{data_path_prefix}/{ulid}{_SUFFIX}"


def batch_time_ms(location: str, data_path_prefix: str | None = None) -> int | None:
    """When a batch object got its name, in ms; None for any other name.

    With a prefix, names elsewhere are other names too, those further down included.
    """
    folder, _, name = location.rpartition("/")
    if data_path_prefix is not None and folder != data_path_prefix:
        return None
    stem = name.removesuffix(_SUFFIX)
    return ulid_time_ms(stem) if stem != name and is_ulid(stem) else None
