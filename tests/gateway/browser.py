"""Headless Chromium for tests of the dashboard, and axe, which checks pages for readers with assistive technology.

Both are optional: a machine without them names what is missing. The browser has no network but the server under test.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import threading
from asyncio import Event, get_running_loop, run
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.gateway import GatewayConfig, HttpServer, serving

BUILD = Path(__file__).parents[2] / "build" / "dashboard"
AXE_VERSION = "4.11.0"
AXE_SHA256 = "e9e5863c33a874f09bc01acd9234b7e3c871479f5eef8802fa582544465e6d01"
WAIT_MS = 60_000
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium():
    """A browser, or a skip that says what to install."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no Chromium here: install the package `chromium` to test the dashboard in a browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS, timeout=WAIT_MS)
        try:
            yield browser
        finally:
            browser.close()


def axe_script() -> str:
    """The text of axe-core, fetched once with npm and checked."""
    kept = BUILD.parent / f"axe-core-{AXE_VERSION}.min.js"
    if not kept.exists():
        _fetch_axe(kept)
    text = kept.read_text()
    assert hashlib.sha256(text.encode()).hexdigest() == AXE_SHA256, f"{kept} is not axe-core {AXE_VERSION}"
    return text


def _fetch_axe(kept: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm here, which fetches axe-core")
    kept.parent.mkdir(parents=True, exist_ok=True)
    command = [npm, "pack", f"axe-core@{AXE_VERSION}", "--silent", "--pack-destination", str(kept.parent)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=120, cwd=kept.parent)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"npm cannot fetch axe-core: {error}")
    archive = kept.parent / f"axe-core-{AXE_VERSION}.tgz"
    with tarfile.open(archive) as opened:
        member = opened.extractfile("package/axe.min.js")
        assert member is not None
        kept.write_bytes(member.read())
    archive.unlink()


@contextmanager
def served(app):
    """The address of an application, served by the real server in a thread of its own."""
    ready: threading.Event = threading.Event()
    found = {}

    async def serve() -> None:
        stop = Event()
        found["stop"] = (get_running_loop(), stop)
        async with serving(HttpServer(app, GatewayConfig(port=0))) as server:
            found["address"] = f"http://127.0.0.1:{server.port}"
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: run(serve()), daemon=True)
    thread.start()
    assert ready.wait(WAIT_MS / 1000)
    try:
        yield found["address"]
    finally:
        loop, stop = found["stop"]
        loop.call_soon_threadsafe(stop.set)
        thread.join(WAIT_MS / 1000)
