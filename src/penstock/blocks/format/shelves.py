"""What the machinery needs to know of the tables beneath one prefix, at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from penstock.blocks.format.directory import Directory
from penstock.blocks.format.keys import Address, Shelf, fragment_key, head_key, page_key

__all__ = ["BlockHead", "Shelves", "all_keys"]


class BlockHead(Protocol):
    """The part of a head that is the machinery's; the rest of the record is the store's own."""

    @property
    def commit(self) -> int:
        """Grows with every commit: two heads with the same one are the same."""
        ...

    @property
    def next_serial(self) -> int:
        """The serial of the next fragment. None is ever given out twice beneath a prefix."""
        ...


class Shelves(Protocol):
    """The shelves beneath one prefix at one moment. They never change; a commit makes new ones."""

    @property
    def name(self) -> object:
        """What messages call them."""
        ...

    @property
    def prefix(self) -> bytes:
        """What all their keys begin with."""
        ...

    @property
    def head(self) -> BlockHead: ...

    @property
    def directories(self) -> Mapping[Shelf, Directory]: ...

    def directory(self, shelf: Shelf, /) -> Directory:
        """The directory of a shelf; the empty one if nothing was ever written to it."""
        ...


def all_keys(shelves: Shelves) -> list[bytes]:
    """Every key below a prefix, according to its directories: deleting them in one batch removes it whole."""
    keys = [head_key(shelves.prefix)]
    for shelf, directory in shelves.directories.items():
        keys += [page_key(shelves.prefix, shelf, low) for low in directory.pages.tolist()]
        keys += [
            fragment_key(shelves.prefix, Address(shelf, int(fragment["low"]), int(fragment["serial"])))
            for fragment in directory.fragments
        ]
    return keys
