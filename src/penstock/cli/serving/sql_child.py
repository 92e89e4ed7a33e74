"""How a gateway starts its SQL processes: with a command that holds their settings, and without its secrets."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.catalog import CatalogConfig
from penstock.lake import SqlConfig

__all__ = ["bare_environment", "sql_command", "worker_bounds"]

# What an interpreter needs to start; everything else may hold a secret.
_KEPT: Final = ("PATH", "PYTHONPATH", "PYTHONHOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")


def sql_command(url: str, prefix: str, bounds: str) -> tuple[str, ...]:
    """What starts a SQL process, but for the pipes through which it reads."""
    return (
        *(sys.executable, "-m", "penstock.cli", "sql-worker"),
        *("--store", url, "--prefix", prefix, "--bounds", bounds),
    )


def bare_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Of an environment, what a SQL process is given: no credentials."""
    return {name: environment[name] for name in _KEPT if name in environment}


def worker_bounds(config: SqlConfig, catalog: CatalogConfig) -> str:
    """The settings of a SQL process, for its command line."""
    return msgspec.json.encode({"sql": config, "catalog": catalog}).decode()
