"""What is damaged, and what can be read in spite of it.

SlateDB names a file whose checksum does not match, and not one that was cut short. A directory can be looked through for
those: every sorted file and every log file ends with the version of its format, and one that was cut ends anywhere.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from penstock.errors import Corrupt
from penstock.keyvalue.port import Reader

__all__ = ["cut_files", "get_each", "naming"]

# Where SlateDB keeps its tables. An empty log file is how a writer takes the fence; an empty table is none.
_TABLES: Final = "compacted"
_LOG: Final = "wal"
_VERSION_BYTES: Final = 2
# Two are known today; what is left of a cut file is any of 65,536.
_VERSION_MAX: Final = 16
_NAMES_MAX: Final = 5
_READS_AT_ONCE: Final = 32


async def get_each(reader: Reader, keys: Sequence[bytes]) -> list[bytes | Corrupt | None]:
    """As `get_many`, with an error in the place of each value that cannot be read, instead of one for all."""
    try:
        return [*await reader.get_many(keys)]
    except Corrupt:
        values: list[bytes | Corrupt | None] = []
        for first in range(0, len(keys), _READS_AT_ONCE):
            values += await asyncio.gather(*(_get(reader, key) for key in keys[first : first + _READS_AT_ONCE]))
        return values


async def _get(reader: Reader, key: bytes) -> bytes | Corrupt | None:
    try:
        return await reader.get(key)
    except Corrupt as error:
        return error


async def naming(error: Corrupt, what: str, folder: Path | None) -> Corrupt:
    """The error for `what`, with the damaged files by name where SlateDB's own words have none."""
    if folder is None or ".sst" in error.why:
        return Corrupt(what, error.why, error.remedy)
    cut = await asyncio.to_thread(cut_files, folder)
    more = f" and {len(cut) - _NAMES_MAX} more" if len(cut) > _NAMES_MAX else ""
    why = f"{', '.join(cut[:_NAMES_MAX])}{more} cut short: {error.why}" if cut else error.why
    return Corrupt(what, why, error.remedy)


def cut_files(folder: Path) -> list[str]:
    """Files of a store that do not end as they were written to, by their names below its directory."""
    return sorted(str(path.relative_to(folder)) for path in _files(folder) if _is_cut(path))


def _files(folder: Path) -> Iterator[Path]:
    for part in (_TABLES, _LOG):
        yield from (folder / part).glob("*.sst")


def _is_cut(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if size < _VERSION_BYTES:
                return size > 0 or path.parent.name == _TABLES
            file.seek(-_VERSION_BYTES, os.SEEK_END)
            return not 0 < int.from_bytes(file.read(_VERSION_BYTES), "big") <= _VERSION_MAX
    except OSError:
        # Collected meanwhile, or not readable: then it is not its end that is at fault.
        return False
