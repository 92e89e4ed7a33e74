"""Folders that a look at places goes on without, because this user may not look into them.

What lies there is as it was, for all that is known: a document that a listing does not show is not gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from penstock.documents import DeleteNotification, Notification
from penstock.objects import StoreSpec

__all__ = ["UnreadableFolders"]


class UnreadableFolders:
    """Those of one look, by their URLs: a document may be known under another folder than the one looked at."""

    def __init__(self) -> None:
        self._folders: set[str] = set()

    def passing_over(self, spec: StoreSpec) -> StoreSpec:
        """The store of a bucket, whose listings go on without such folders."""

        def unreadable(folder: str) -> None:
            self._folders.add(f"{spec.url}/{folder}")

        return replace(spec, options={**spec.options, "unreadable": unreadable})

    def without_deletions(self, events: Iterable[Notification], url_of: Callable[[str], str]) -> list[Notification]:
        """The events of a look, but for deletions of what it could not see."""
        return [
            event
            for event in events
            if not (isinstance(event, DeleteNotification) and self._hides(f"{url_of(event.bucket)}/{event.key}"))
        ]

    def _hides(self, url: str) -> bool:
        return any(url.startswith(folder) for folder in self._folders)
