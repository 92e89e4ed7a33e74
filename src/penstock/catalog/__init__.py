"""A catalog of data files: decides which are visible, by compare-and-swap, and plans reads and compaction."""

from penstock.catalog.catalog import Catalog, Pinned
from penstock.catalog.change.compaction import CompactionTask, Lease
from penstock.catalog.change.predicate import Predicate, parse_predicate
from penstock.catalog.change.sources import Registered, SourceProgress
from penstock.catalog.config import CatalogConfig, CompactionPolicy
from penstock.catalog.format.data_file import DataFile, file_json
from penstock.catalog.format.layout import CatalogLayout
from penstock.catalog.format.statistics import ColumnStats, column_stats
from penstock.catalog.inspection import catalog_stats, require_catalog, verify_catalog
from penstock.catalog.migration import MigrationReport, downgrade, migrate, rebuild_index, split_catalog
from penstock.catalog.plan import Plan
from penstock.catalog.reader import HeldCatalog, PastCatalog
from penstock.catalog.scan.fragments import file_dataset, references
from penstock.catalog.scan.object_file import Door, LoopDoor, ObjectFiles, RangeStore, TailCache
from penstock.catalog.scan.row_filter import conjunction, row_filter, time_filter
from penstock.catalog.scan.scan import Scan, ScanQuery, scanner_of
from penstock.catalog.scan.schemas import damaged, unified, union_schema
from penstock.catalog.shards import Position
from penstock.catalog.split import split_shard
from penstock.catalog.vacuum import Vacuum, Vacuumed

__all__ = [
    "Catalog",
    "CatalogConfig",
    "CatalogLayout",
    "ColumnStats",
    "CompactionPolicy",
    "CompactionTask",
    "DataFile",
    "Door",
    "HeldCatalog",
    "Lease",
    "LoopDoor",
    "MigrationReport",
    "ObjectFiles",
    "PastCatalog",
    "Pinned",
    "Plan",
    "Position",
    "Predicate",
    "RangeStore",
    "Registered",
    "Scan",
    "ScanQuery",
    "SourceProgress",
    "TailCache",
    "Vacuum",
    "Vacuumed",
    "catalog_stats",
    "column_stats",
    "conjunction",
    "damaged",
    "downgrade",
    "file_dataset",
    "file_json",
    "migrate",
    "parse_predicate",
    "rebuild_index",
    "references",
    "require_catalog",
    "row_filter",
    "scanner_of",
    "split_catalog",
    "split_shard",
    "time_filter",
    "unified",
    "union_schema",
    "verify_catalog",
]
