"""Query and maintain the data files of a catalog: SQL on DuckDB, sorted merges under leases, retention and vacuum."""

from penstock.lake.answer_rows import answer_rows
from penstock.lake.compactor import CompactionSummary, Compactor, Upkept
from penstock.lake.file_layout import CompactionConfig
from penstock.lake.merge_files import MergeWork
from penstock.lake.merging import LocalMerging, MergeFailure, MergePlace, MergeResult, Merging, merge_one
from penstock.lake.process_watch import ProcessWatch, resident_bytes
from penstock.lake.sql import SqlAnswer, SqlEngine
from penstock.lake.sql_config import SqlConfig
from penstock.lake.sql_source import SqlPin, SqlPlan, SqlSource, SqlState
from penstock.lake.statement import scans_tables_once, tables_of

__all__ = [
    "CompactionConfig",
    "CompactionSummary",
    "Compactor",
    "LocalMerging",
    "MergeFailure",
    "MergePlace",
    "MergeResult",
    "MergeWork",
    "Merging",
    "ProcessWatch",
    "SqlAnswer",
    "SqlConfig",
    "SqlEngine",
    "SqlPin",
    "SqlPlan",
    "SqlSource",
    "SqlState",
    "Upkept",
    "answer_rows",
    "merge_one",
    "resident_bytes",
    "scans_tables_once",
    "tables_of",
]
