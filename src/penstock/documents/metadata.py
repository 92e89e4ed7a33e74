"""What somebody says of a document beside its content: own metadata, from its notification or a side-car file. Pure.

The side-car of `reports/q3.pdf` is the object `reports/q3.pdf.meta.json` in the same bucket: one JSON object of names
and values. Texts, whole numbers, numbers and truth values can be filtered on; lists and objects are kept and shown;
null takes away what the notification said. What is over a bound is left out with a warning, and the document is indexed
all the same; a side-car that is not a JSON object is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from penstock.errors import AtCapacity, InvalidInput

__all__ = [
    "SIDECAR_BYTES_MAX",
    "SIDECAR_SUFFIX",
    "Metadata",
    "bounded_metadata",
    "is_sidecar",
    "merged_metadata",
    "parse_sidecar",
    "sidecar_key",
    "sidecar_subject",
]

Metadata: TypeAlias = dict[str, Any]

SIDECAR_SUFFIX: Final = ".meta.json"
# Of a side-car file: its values lie in every row of its document, and in the entry that is written with it.
SIDECAR_BYTES_MAX: Final = 64 << 10
KEYS_MAX: Final = 100
NAME_CHARACTERS_MAX: Final = 100
TEXT_CHARACTERS_MAX: Final = 4_096
# Of all names and values together, as JSON.
METADATA_BYTES_MAX: Final = 16 << 10
_INTEGER_MIN, _INTEGER_MAX = -(1 << 63), (1 << 63) - 1
_DEPTH_MAX: Final = 8
_SHOWN_CHARACTERS: Final = 40
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


def is_sidecar(key: str) -> bool:
    """Whether an object is the side-car of another, whether that is there or not."""
    return (
        key.endswith(SIDECAR_SUFFIX)
        and not key.removesuffix(SIDECAR_SUFFIX).endswith(("/", SIDECAR_SUFFIX))
        and (key != SIDECAR_SUFFIX)
    )


def sidecar_key(key: str) -> str:
    """The side-car that a document may have."""
    return key + SIDECAR_SUFFIX


def sidecar_subject(key: str) -> str:
    """The document that a side-car is of."""
    return key.removesuffix(SIDECAR_SUFFIX)


def parse_sidecar(data: bytes) -> tuple[Metadata, tuple[str, ...]]:
    """The metadata in a side-car file, and what of it is left out. `InvalidInput` if it is not a JSON object."""
    if len(data) > SIDECAR_BYTES_MAX:
        raise AtCapacity(
            f"a side-car file of {len(data):,} bytes", f"at most {SIDECAR_BYTES_MAX:,} are read", "shorten it"
        )
    try:
        given = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except _UNREADABLE as error:
        raise InvalidInput(
            "a side-car file cannot be read", f"it is not JSON: {error}", "write a JSON object"
        ) from error
    if not isinstance(given, dict):
        raise InvalidInput(
            "a side-car file cannot be used", f"it holds a {type(given).__name__}", 'write an object: {"team": "sales"}'
        )
    return bounded_metadata(given)


def bounded_metadata(given: Mapping[str, Any]) -> tuple[Metadata, tuple[str, ...]]:
    """What of some metadata is kept, names in order, and what is left out and why."""
    kept: Metadata = {}
    warnings: list[str] = []
    size = 2
    for name in sorted(map(str, given))[: KEYS_MAX + 1]:
        value = given[name]
        why = _name_fault(name) or _value_fault(value)
        size_after = size if why else size + len(_encoded(name)) + len(_encoded(value)) + 2
        if not why and len(kept) == KEYS_MAX:
            why = f"a document has at most {KEYS_MAX} names"
        if not why and size_after > METADATA_BYTES_MAX:
            why = f"all of it has more than {METADATA_BYTES_MAX:,} bytes"
        if why:
            warnings.append(f"metadata {_shown(name)} is left out: {why}")
            continue
        kept[name], size = value, size_after
    if len(given) > KEYS_MAX + 1:
        warnings.append(f"metadata has {len(given):,} names: a document has at most {KEYS_MAX}")
    return kept, tuple(warnings)


def merged_metadata(
    told: Mapping[str, Any] | None, sidecar: Mapping[str, Any] | None
) -> tuple[Metadata, tuple[str, ...]]:
    """What holds of a document: what its side-car says, and else what its notification said. Null is no value."""
    joined = {**(told or {}), **(sidecar or {})}
    return bounded_metadata({name: value for name, value in joined.items() if value is not None})


def _name_fault(name: str) -> str:
    if not name.strip():
        return "a name is not empty"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"a name has at most {NAME_CHARACTERS_MAX} characters"
    return "" if name.isprintable() else "a name has no control characters"


def _value_fault(value: Any, depth: int = 0) -> str:
    if depth > _DEPTH_MAX:
        return f"it nests deeper than {_DEPTH_MAX} levels"
    if isinstance(value, str):
        too_long = len(value) > TEXT_CHARACTERS_MAX
        return f"a text has at most {TEXT_CHARACTERS_MAX:,} characters" if too_long else _text_fault(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "it is not a number"
    if isinstance(value, int) and not _INTEGER_MIN <= value <= _INTEGER_MAX:
        return "a whole number has 64 bits"
    if isinstance(value, dict):
        return next((why for part in (*value, *value.values()) if (why := _value_fault(part, depth + 1))), "")
    if isinstance(value, list | tuple):
        return next((why for part in value if (why := _value_fault(part, depth + 1))), "")
    return "" if value is None or isinstance(value, bool | int | float) else f"it is a {type(value).__name__}"


def _text_fault(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        return "it has characters that UTF-8 cannot encode"
    return ""


def _encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _shown(name: str) -> str:
    cut = name[:_SHOWN_CHARACTERS]
    return repr("".join(sign if sign.isprintable() else " " for sign in cut)) + ("…" if len(name) > len(cut) else "")
