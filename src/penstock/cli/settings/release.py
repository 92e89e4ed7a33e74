"""Which release of Penstock this is, for whoever asks over a protocol."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

__all__ = ["release"]

_FROM_SOURCE: Final = "0+source"


def release() -> str:
    """The installed version; a checkout that runs from its source folder has none."""
    try:
        return version("penstock")
    except PackageNotFoundError:
        return _FROM_SOURCE
