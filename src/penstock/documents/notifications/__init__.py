"""Notifications of object stores, one module per source: all become `UploadNotification` or `DeleteNotification`."""

from typing import Final

from penstock.documents.notifications import (
    azure,
    ceph,
    cloudevents,
    eventbridge,
    gcs,
    minio,
    s3,
    seaweedfs,
)
from penstock.documents.notifications.cloudevents import BATCHED
from penstock.documents.notifications.received import Destination, NotificationMessage, Parser, Received, Router
from penstock.documents.notifications.replays import StoredReplays
from penstock.documents.notifications.sns import SnsTrust
from penstock.documents.notifications.trust import SIGNATURE_HEADER, BearerTrust, HmacTrust
from penstock.errors import InvalidInput

__all__ = [
    "BATCHED",
    "PARSERS",
    "SIGNATURE_HEADER",
    "BearerTrust",
    "Destination",
    "HmacTrust",
    "NotificationMessage",
    "Parser",
    "Received",
    "Router",
    "SnsTrust",
    "StoredReplays",
    "parser_of",
]

PARSERS: Final[dict[str, Parser]] = {
    "s3": s3.parse,
    "eventbridge": eventbridge.parse,
    "minio": minio.parse,
    "ceph": ceph.parse,
    "cloudevents": cloudevents.parse,
    "seaweedfs": seaweedfs.parse,
    "gcs": gcs.parse,
    "azure": azure.parse,
}


def parser_of(source: str) -> Parser:
    """The parser of a source, or `InvalidInput` with the sources there are."""
    parser = PARSERS.get(source)
    if parser is None:
        raise InvalidInput(f"no notification source {source!r}", f"there are {', '.join(sorted(PARSERS))}")
    return parser
