"""Commands as pages show them: read from their fences, and run as a reader would type them.

A fence of `bash` or `python` is run. One that cannot be says so in its title: `not run by the tests: REASON`. A fence that
holds `penstock serve` alone is the server, which runs already; its address takes the place of the page's own.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
ADDRESS = "http://127.0.0.1:4318"
NOT_RUN = "not run by the tests"
SECONDS_MAX = 300.0
_FENCE = re.compile(r'^```(\w*)(?: title="([^"]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Fence:
    language: str
    title: str
    text: str

    @property
    def is_run(self) -> bool:
        return self.language in ("bash", "python") and not self.title.startswith(NOT_RUN) and not self.is_server

    @property
    def is_server(self) -> bool:
        return self.language == "bash" and self.text.startswith("penstock serve") and self.text.count("\n") == 1


def fences(page: Path) -> list[Fence]:
    return [Fence(*found) for found in _FENCE.findall(page.read_text())]


def script_of(page: Path, address: str = ADDRESS) -> str:
    """Everything of a page that is run, in its order, as one script. Fences of Python are one session."""
    shell: list[str] = []
    python: list[str] = []
    for fence in fences(page):
        if not fence.is_run:
            continue
        if fence.language == "bash":
            shell.append(fence.text)
            continue
        python.append(fence.text)
        shell = [part for part in shell if not part.startswith("python - <<")]
        shell.append("python - <<'PYTHON'\n" + "\n".join(python) + "PYTHON\n")
    return "\n".join(shell).replace(ADDRESS, address)


def run_page(page: Path, folder: Path, address: str = ADDRESS, environment: Mapping[str, str] | None = None) -> str:
    """What the page's commands print. One that fails fails the test, with everything they said."""
    run = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script_of(page, address)],
        cwd=folder,
        env=_environment(folder, environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    assert run.returncode == 0, f"{page.name}: {run.stderr}\n{run.stdout}"
    return run.stdout


def _environment(folder: Path, more: Mapping[str, str]) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, "PATH": path, "EXAMPLES": str(EXAMPLES), "HOME": str(folder), "NO_PROXY": "*", **more}


@contextmanager
def penstock_served(folder: Path) -> Iterator[str]:
    """The address of a `penstock serve --engine local` of its own, on a port that the system chose."""
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "serve", "--engine", "local", "--port", "0"],
        cwd=folder,
        env=_environment(folder, {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("Penstock answers at "), line
        yield line.split()[-1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS_MAX) == 0
    finally:
        process.kill()
        process.wait()
