"""A data file as the catalog knows it, and the hours it touches. Its JSON is the `chunks` entry of version 2.

Times are nanoseconds since the Unix epoch, and both ends are included: a file that ends on the hour is
listed under that hour too. A path is relative to the catalog's prefix and never used twice.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from penstock.catalog.format.statistics import ColumnStats, stats_json
from penstock.errors import InvalidInput
from penstock.undecodable import UNDECODABLE

__all__ = [
    "DAY_NS",
    "HOUR_NS",
    "INT64_MAX",
    "INT64_MIN",
    "KNOWN_MEMBERS",
    "DataFile",
    "day_of",
    "decode_file",
    "encode_file",
    "file_json",
    "hours_of",
    "is_same_file",
]

HOUR_NS: Final = 3_600_000_000_000
DAY_NS: Final = 24 * HOUR_NS
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
# A file that spans more is listed so often that one entry would outweigh a whole catalog.
HOURS_MAX: Final = 24 * 400
LEVEL_MAX: Final = 15
PATH_CHARACTERS_MAX: Final = 1024
# Control characters and others that stores cannot carry, and segments that are empty or could leave a folder.
_NOT_IN_PATH: Final = re.compile(r"[\x00-\x1f\x7f\\\ufffe\uffff\ud800-\udfff]|//|/\.\.?/")
# What `file_json` writes; every other member of an entry is somebody else's, and kept.
KNOWN_MEMBERS: Final = frozenset(
    {
        "path",
        "min_timestamp",
        "max_timestamp",
        "row_count",
        "size_bytes",
        "level",
        "shard_id",
        "tenant",
        "table",
        "column_stats",
    }
)


class DataFile(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file that readers may see."""

    path: str
    min_timestamp: int
    max_timestamp: int
    row_count: int
    size_bytes: int
    level: int = 0
    shard_id: str | None = None
    tenant: str = ""
    table: str = ""
    column_stats: dict[str, ColumnStats] = {}

    def __post_init__(self) -> None:
        try:
            fault = _fault(self)
        except (TypeError, AttributeError) as error:
            raise InvalidInput(f"data file {self.path!r:.80} cannot be listed", f"a type is wrong: {error}") from error
        if fault:
            raise InvalidInput(f"data file {self.path[:80]!r} cannot be listed", fault)


def is_same_file(one: DataFile, other: DataFile) -> bool:
    """Whether both describe the same content; which shard lists it is the catalog's affair."""
    return one == other or msgspec.structs.replace(one, shard_id=other.shard_id) == other


def hours_of(file: DataFile) -> range:
    """The start of each hour that the file touches, both ends included."""
    first, last = (time // HOUR_NS * HOUR_NS for time in (file.min_timestamp, file.max_timestamp))
    return range(first, last + HOUR_NS, HOUR_NS)


def day_of(time_ns: int) -> int:
    """The start of the day, in nanoseconds."""
    return time_ns // DAY_NS * DAY_NS


def file_json(file: DataFile) -> dict[str, Any]:
    """The members of version 2, then tenant and table where they are known."""
    json: dict[str, Any] = {
        "path": file.path,
        "min_timestamp": file.min_timestamp,
        "max_timestamp": file.max_timestamp,
        "row_count": file.row_count,
        "size_bytes": file.size_bytes,
        "level": file.level,
        "shard_id": file.shard_id,
    }
    if file.tenant:
        json["tenant"] = file.tenant
    if file.table:
        json["table"] = file.table
    json["column_stats"] = {name: stats_json(stats) for name, stats in file.column_stats.items()}
    return json


def encode_file(file: DataFile) -> bytes:
    """The entry, once it is known that it can be read again: a head that cannot be is lost to everybody."""
    try:
        raw = _ENCODER.encode(file_json(file))
        _DECODER.decode(raw)
    except (*UNDECODABLE, TypeError, ValueError) as error:
        raise InvalidInput(
            f"data file {file.path[:80]!r} cannot be listed", f"its entry is invalid: {error}"
        ) from error
    return raw


def decode_file(raw: bytes | msgspec.Raw) -> DataFile:
    """Members that are not known are left out here; whoever keeps the entry keeps its bytes."""
    return _DECODER.decode(raw)


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(DataFile)


def _is_path(path: str) -> bool:
    if not 0 < len(path) <= PATH_CHARACTERS_MAX:
        return False
    is_plain = path.isascii() and path.isprintable() and path[0] not in "/." and path[-1] != "/"
    if is_plain and "/." not in path and "//" not in path and "\\" not in path:
        # Nearly every path, found out in a tenth of the time of the expression below.
        return True
    return not _NOT_IN_PATH.search(f"/{path}/")


def _is_broken(text: str) -> bool:
    """Whether it holds half of a surrogate pair, which no encoding carries."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def _fault(file: DataFile) -> str:
    if not _is_path(file.path):
        return "its path must be up to 1,024 characters in segments joined by single slashes, none of them . or .."
    if _is_broken(file.tenant) or _is_broken(file.table):
        return "its tenant and table must be Unicode text"
    if not INT64_MIN <= file.min_timestamp <= file.max_timestamp <= INT64_MAX:
        return "its times must fit 64 bits, the first not after the last"
    if file.max_timestamp // HOUR_NS - file.min_timestamp // HOUR_NS >= HOURS_MAX:
        return f"it spans more than {HOURS_MAX} hours"
    if not (0 <= file.row_count <= INT64_MAX and 0 <= file.size_bytes <= INT64_MAX and 0 <= file.level <= LEVEL_MAX):
        return f"rows and bytes must not be negative, and its level must be 0 to {LEVEL_MAX}"
    return ""
