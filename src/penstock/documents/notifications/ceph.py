"""Ceph's bucket notifications: the records of S3 with raw keys, sizes that may be text, and packed sequencers.

`ObjectCreated:Post` tells that a multipart upload was begun: there is no object yet, and the event of its completion
will follow.
"""

from __future__ import annotations

from typing import Final

from penstock.documents import sequencers
from penstock.documents.notifications import s3
from penstock.documents.notifications.received import NotificationMessage, Received, Router

__all__ = ["CEPH", "parse"]

CEPH: Final = s3.Dialect("Ceph", str, sequencers.ceph, frozenset({"ObjectCreated:Post"}))


def parse(delivery: NotificationMessage, route: Router) -> Received:
    return s3.parse(delivery, route, CEPH)
