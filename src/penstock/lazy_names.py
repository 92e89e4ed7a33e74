"""Public lists whose modules load when a name of theirs is first asked for.

A package that is reached by many processes, of which each needs a little of it, ends its `__init__` with:

    __getattr__ = lazy_names(__name__, {"wal": ("WriteAheadLog", "WalEntry"), "manifest": ("Manifest",)})

Type checkers read the imports under `TYPE_CHECKING` instead; a house test holds the two and `__all__` equal.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["lazy_names"]


def lazy_names(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: `homes` has the names by the module, relative to the package, that defines them."""
    home_of = {name: home for home, names in homes.items() for name in names}

    def load(name: str) -> Any:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home}"), name)

    return load
