"""Folders that a look at places goes on without, because this user may not look into them.

What lies there is as it was, for all that is known: a document that a listing does not show is not gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.documents import DeleteNotification, Notification
from penstock.objects import StoreSpec

__all__ = ["UnreadableFolders"]


class UnreadableFolders:
    """Those of one look, by bucket."""

    def __init__(self) -> None:
        self._folders: dict[str, set[str]] = {}

    def passing_over(self, bucket: str, spec: StoreSpec) -> StoreSpec:
        """The store of a bucket, whose listings go on without such folders."""
        folders = self._folders.setdefault(bucket, set())
        return replace(spec, options={**spec.options, "unreadable": folders.add})

    def without_deletions(self, events: Iterable[Notification]) -> list[Notification]:
        """The events of a look, but for deletions of what it could not see."""
        return [event for event in events if not (isinstance(event, DeleteNotification) and self._hides(event))]

    def _hides(self, event: Notification) -> bool:
        return any(event.key.startswith(folder) for folder in self._folders.get(event.bucket, ()))
