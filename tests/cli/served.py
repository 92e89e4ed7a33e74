"""A real `penstock serve`, asked over HTTP."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

START_SECONDS_MAX = 90.0


class Served:
    """A process that answers. What it prints besides is in `serve.log` of its folder."""

    def __init__(
        self, folder: Path, *options: str, token: str | None = None, environment: dict[str, str] | None = None
    ) -> None:
        self.folder = folder
        with (folder / "serve.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock.cli", "serve", "--port", "0", "--engine", "local", *options],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **(environment or {})},
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("Penstock answers at "), line + (folder / "serve.log").read_text()
        self.url = line.split()[-1]
        self.client = self.asking(token)

    def asking(self, token: str | None = None) -> httpx.Client:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, timeout=START_SECONDS_MAX, trust_env=False, headers=headers)

    def children(self) -> list[int]:
        """The processes of jobs and queries."""
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in found]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(START_SECONDS_MAX)

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()


def waited_for(look: Callable[[], Any], seconds: float = 2 * START_SECONDS_MAX) -> Any:
    """What `look` gives once it gives something; the last thing when the time is up."""
    deadline = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found
