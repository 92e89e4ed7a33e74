"""What the JSON objects of a catalog have in common: a checksum at their end, and members of later releases.

A checksum covers every byte before `,"crc32c"`, so no flipped bit goes unnoticed. A member that is not known
is kept with the object that it was found in, and written again with it.
"""

from __future__ import annotations

import re
from json import JSONDecoder
from typing import Any, Final, TypeVar

import google_crc32c
import msgspec

from penstock.errors import Corrupt

__all__ = ["check_names", "check_seal", "parsed", "sealed", "unparsed"]

_SEAL: Final = b',"crc32c":"%08x"}'
_SEAL_END: Final = re.compile(rb',"crc32c":"([0-9a-f]{8})"\}\s*\Z')
# White space that an editor may have left at the end.
_SLACK_BYTES: Final = 64

S = TypeVar("S", bound=msgspec.Struct)


def sealed(body: bytes) -> bytes:
    """A JSON object that lacks its closing brace, closed with its checksum."""
    return body + _SEAL % int(google_crc32c.value(body))


def check_seal(body: bytes, what: str) -> None:
    end = _SEAL_END.search(body, max(0, len(body) - len(_SEAL % 0) - _SLACK_BYTES))
    if end is None:
        raise Corrupt(f"{what} is damaged", "it does not end with its checksum")
    found = google_crc32c.value(body[: end.start()])
    if found != int(end.group(1), 16):
        raise Corrupt(f"{what} is damaged", f"its checksum is {end.group(1).decode()}, and its bytes give {found:08x}")


def check_names(body: bytes, what: str) -> None:
    """Refuse an object that has a name twice. Parsers keep the last of the two, so the files of the other would be
    lost with the next write. What we sealed has none: this is for bodies that another program wrote."""

    def once(members: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in members]
        if len(set(names)) < len(names):
            twice = next(name for at, name in enumerate(names) if name in names[:at])
            why = f"the member {twice[:80]!r} is there twice, and only one of them can be read"
            raise Corrupt(f"{what} is damaged", why, "write it again with the program that wrote it")

    JSONDecoder(object_pairs_hook=once).decode(body.decode())


def parsed(json: dict[str, Any], type: type[S]) -> S:
    """A struct from its members; those that it does not have go to its `extra`."""
    names = type.__struct_fields__
    known = {name: value for name, value in json.items() if name in names and name != "extra"}
    extra = {name: value for name, value in json.items() if name not in known}
    return msgspec.convert({**known, "extra": extra}, type)


def unparsed(struct: msgspec.Struct) -> dict[str, Any]:
    """The members of a struct, with those that came from a later release."""
    json: dict[str, Any] = msgspec.to_builtins(struct)
    extra = json.pop("extra", {})
    return {**extra, **json}
