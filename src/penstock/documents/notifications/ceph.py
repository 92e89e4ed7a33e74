"""Ceph's bucket notifications: the records of S3 with raw keys, sizes that may be text, and packed sequencers.

`ObjectCreated:Post` tells that a multipart upload was begun: there is no object yet, and the event of its completion
will follow. What a zone copies from another one has events of its own, under two names: here it is written or removed
like anything else.
"""

from __future__ import annotations

from typing import Final

from penstock.documents import sequencers
from penstock.documents.notifications import s3
from penstock.documents.notifications.received import NotificationMessage, Received, Router

__all__ = ["CEPH", "parse"]

_COPIED: Final = {
    f"{family}:{name}": event
    for family in ("ObjectSynced", "Replication")
    for name, event in {
        "Create": "ObjectCreated:Copy",
        "Delete": "ObjectRemoved:Delete",
        "DeletionMarkerCreated": "ObjectRemoved:DeleteMarkerCreated",
    }.items()
}
# As older releases write it.
_OLD: Final = {"ObjectLifecycle:Expiration:Noncurrent": "ObjectLifecycle:Expiration:NonCurrent"}

CEPH: Final = s3.Dialect("Ceph", str, sequencers.ceph, frozenset({"ObjectCreated:Post"}), {**_COPIED, **_OLD})


def parse(delivery: NotificationMessage, route: Router) -> Received:
    return s3.parse(delivery, route, CEPH)
