"""A SPARK_HOME whose Python workers start quickly: the installed Spark, with its Python library unpacked.

Spark puts `python/lib/pyspark.zip` first on the path of every Python process that it starts, and the modules in that
archive are compiled anew each time. Here a folder of that name holds links to the installed packages, which are
compiled already: a streaming query starts with half the processor time.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["write_spark_home"]

_ARCHIVE: Final = Path("python", "lib", "pyspark.zip")
# What the archive and its neighbour of py4j bring.
_PACKAGES: Final = ("pyspark", "py4j")
# Of an installed Spark, what its launchers look for.
_PARTS: Final = ("bin", "jars", "sbin")


def write_spark_home(directory: Path) -> Path | None:
    """Make `directory` a home of the Spark that is installed here; None where that cannot be written."""
    packages = {name: _installed(name) for name in _PACKAGES}
    spark = packages["pyspark"]
    wanted = {directory / part: spark / part for part in _PARTS}
    wanted |= {directory / _ARCHIVE / name: found for name, found in packages.items()}
    try:
        for link, target in wanted.items():
            _link(link, target)
    except OSError:
        # Slower, and as right: an environment may be read-only.
        return None
    return directory


def _installed(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None, package
    assert spec.origin is not None, package
    return Path(spec.origin).parent


def _link(link: Path, target: Path) -> None:
    """Replaced in one step: another process may be starting from it."""
    if link.is_symlink() and link.readlink() == target:
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    fresh = link.with_name(f"{link.name}.{os.getpid()}")
    fresh.symlink_to(target)
    fresh.replace(link)
