"""Where batch objects lie: `{data_path_prefix}/{ULID}.batch`. The name tells when it was given.

A manifest names them by their keys in the whole bucket, so that a consumer finds them though it opened
the bucket with another prefix than the producer, or is of the other project and knows no prefixes.
"""

from __future__ import annotations

from typing import Final

from penstock.errors import Corrupt, InvalidInput
from penstock.ids import is_ulid, ulid_time_ms
from penstock.objects import check_key, parse_url

__all__ = ["batch_location", "batch_time_ms", "bucket_prefix", "key_of", "owner_location"]

_SUFFIX: Final = ".batch"
_OWNER: Final = "queue-owner.json"
_BUCKETS: Final = ("s3://", "az://", "gs://")


def batch_location(data_path_prefix: str, ulid: str) -> str:
    return f"{data_path_prefix}/{ulid}{_SUFFIX}"


def owner_location(data_path_prefix: str) -> str:
    """The marker that says which manifest a folder of batch objects belongs to."""
    return f"{data_path_prefix}/{_OWNER}"


def batch_time_ms(location: str, data_path_prefix: str | None = None) -> int | None:
    """When a batch object got its name, in ms; None for any other name.

    With a prefix, names elsewhere are other names too, those further down included.
    """
    folder, _, name = location.rpartition("/")
    if data_path_prefix is not None and folder != data_path_prefix:
        return None
    stem = name.removesuffix(_SUFFIX)
    return ulid_time_ms(stem) if stem != name and is_ulid(stem) else None


def bucket_prefix(store_url: str) -> str:
    """What stands before the keys of this store in its bucket: nothing, or the URL's prefix and a slash."""
    prefix = parse_url(store_url).prefix if store_url.startswith(_BUCKETS) else ""
    return f"{prefix}/" if prefix else ""


def key_of(location: str, store_url: str) -> str:
    """The key in this store of a location in the manifest; `Corrupt` if the location cannot be a key."""
    try:
        check_key(location)
    except InvalidInput as error:
        # The fault is the entry's and not the caller's.
        raise Corrupt("its location cannot be a key", error.why) from error
    prefix = bucket_prefix(store_url)
    if not location.startswith(prefix):
        # Sound, and out of reach: never a dead letter.
        raise InvalidInput(
            f"batch object {location!r} cannot be read",
            f"it is outside {store_url}",
            "open the bucket without a prefix, and give the folders as data_path_prefix and manifest_path",
        )
    return location.removeprefix(prefix)
