"""Opens Spark sessions for tests and for the drivers that tests kill."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.cli.running.warm_start import archive_folder
from penstock.pipelines.spark.session import class_archive, open_session, prepare_environment

SHIM_DIRECTORY = Path(sys.prefix) / "share" / "penstock" / "java"


def open_test_session(master: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session as commands open one: with the archive of Spark's classes, where `make test` has recorded it."""
    java = prepare_environment(os.environ, SHIM_DIRECTORY)
    folder = archive_folder(os.environ)
    archive = class_archive(java, folder, master) if folder else None
    return open_session(master, settings=settings, java_options=archive.options() if archive else "")
