"""MinIO's webhook: the records of S3 with `s3:` before the event's name and nanoseconds in hex as the sequencer.

The key at the top is raw and carries the bucket; the record's own key is escaped like a form, and is the one read.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_plus

from penstock.documents import sequencers
from penstock.documents.notifications import s3
from penstock.documents.notifications.received import NotificationMessage, Received, Router

__all__ = ["MINIO", "parse"]

MINIO: Final = s3.Dialect("MinIO", unquote_plus, sequencers.minio)


def parse(delivery: NotificationMessage, route: Router) -> Received:
    return s3.parse(delivery, route, MINIO)
