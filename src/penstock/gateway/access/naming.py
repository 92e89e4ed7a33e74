"""Names that come from outside: tenants, tables and indexes.

They become parts of keys, paths and SQL, so the alphabet is strict: ASCII letters, digits, dot, dash and underscore,
beginning with a letter or digit. What the house keeps for itself begins with `penstock` or an underscore.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from penstock.errors import InvalidInput

__all__ = ["check_index", "check_key", "check_table", "check_tenant"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# Tables become names in SQL.
_TABLE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_RESERVED: Final = "penstock"
_KEY_BYTES_MAX: Final = 1024
# Where a store keeps its locks and probes; no object lies there.
_STORES_OWN: Final = ".penstock"


def check_tenant(name: str) -> str:
    return _checked("tenant", name, _NAME)


def check_index(name: str) -> str:
    return _checked("index", name, _NAME)


def check_table(name: str) -> str:
    return _checked("table", name, _TABLE)


def check_key(key: str) -> str:
    """The key of a document: a relative path, in NFC, without parts that lead elsewhere."""
    parts = key.split("/")
    if (
        not key
        or len(key.encode()) > _KEY_BYTES_MAX
        or unicodedata.normalize("NFC", key) != key
        or any(part in ("", ".", "..") for part in parts)
        or parts[0] == _STORES_OWN
        or any(unicodedata.category(letter)[0] == "C" for letter in key)
    ):
        raise InvalidInput(
            f"the key {key[:80]!r} cannot be used",
            f"a key is a path of at most {_KEY_BYTES_MAX} bytes in NFC, without empty parts, dots or control characters, "
            f"and does not begin with {_STORES_OWN}/",
        )
    return key


def _checked(kind: str, name: str, pattern: re.Pattern[str]) -> str:
    if not pattern.fullmatch(name):
        raise InvalidInput(
            f"the {kind} {name[:80]!r} cannot be used",
            "a name has 1 to 63 ASCII letters, digits and underscores"
            if pattern is _TABLE
            else "a name has 1 to 64 ASCII letters, digits, dots, dashes and underscores, and begins with one of the first two",
            f"choose another {kind}",
        )
    if name.lower().startswith(_RESERVED):
        raise InvalidInput(f"the {kind} {name!r} cannot be used", "names that begin with penstock are reserved")
    return name
