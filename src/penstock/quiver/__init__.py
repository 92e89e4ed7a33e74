"""A store at the edge: Arrow bundles in, immutable segments out to every subscriber, nothing acknowledged lost."""

from penstock.quiver.bundles.bundle import Ack, Bundle
from penstock.quiver.config import (
    DeliveryOrder,
    Durability,
    OrphanPolicy,
    QuiverConfig,
    RetentionConfig,
    SegmentConfig,
    SizeCapPolicy,
    SubscriberConfig,
    WalConfig,
    WriteMode,
)
from penstock.quiver.delivery.delivery import Delivery
from penstock.quiver.inspection import InstanceReport, inspect_store, stored_tables
from penstock.quiver.opening import Findings
from penstock.quiver.scan import ScanTime, gather
from penstock.quiver.segment.format import SegmentMeta
from penstock.quiver.store import Quiver
from penstock.quiver.sync import SyncDelivery, SyncQuiver

__all__ = [
    "Ack",
    "Bundle",
    "Delivery",
    "DeliveryOrder",
    "Durability",
    "Findings",
    "InstanceReport",
    "OrphanPolicy",
    "Quiver",
    "QuiverConfig",
    "RetentionConfig",
    "ScanTime",
    "SegmentConfig",
    "SegmentMeta",
    "SizeCapPolicy",
    "SubscriberConfig",
    "SyncDelivery",
    "SyncQuiver",
    "WalConfig",
    "WriteMode",
    "gather",
    "inspect_store",
    "stored_tables",
]
