"""A standalone Spark cluster of several processes on this machine, started from the pyspark wheel alone.

One master and some workers, all on free ports of 127.0.0.1; each application gets an executor process on every worker.
The processes of an executor can be found here and killed, which is what it is for. Executors run the Python that this
process runs. Linux only: processes are looked up in `/proc`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import httpx

from penstock.ids import SYSTEM_ENTROPY
from penstock.pipelines import prepare_environment

__all__ = ["QUICK_JVM", "SparkCluster", "descendants", "python_workers", "spark_cluster", "spark_environment"]

# The C1 compiler and the serial collector: short programs start faster and never get warm.
QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# A cold master needs 3 s and a worker 8 on an idle machine, and ten times that on a busy one.
_START_SECONDS_MAX: Final = 180.0
_POLL_SECONDS: Final = 0.2
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"
# The daemon forks one process a task; both carry its name, and the one of a streaming source names that source too.
_DAEMON: Final = "pyspark.daemon"
_WORKER: Final = "pyspark.daemon pyspark.worker"


@dataclass(frozen=True)
class SparkCluster:
    """A running cluster. `settings` are those that an application on a small machine should open its session with."""

    master: str
    environment: dict[str, str] = field(repr=False)
    workers: tuple[int, ...]
    memory: str
    secret: str = field(repr=False)
    # What the master has written so far.
    master_log: Path = field(repr=False)

    @property
    def settings(self) -> dict[str, str]:
        return {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": QUICK_JVM,
            "spark.executor.extraJavaOptions": QUICK_JVM,
            "spark.executor.memory": self.memory,
            "spark.executor.cores": "1",
            "spark.authenticate.secret": self.secret,
        }

    def executors(self) -> list[int]:
        """The process ids of the executors that run now, of all applications."""
        return [pid for worker in self.workers for pid in descendants(worker, _EXECUTOR)]


@contextlib.contextmanager
def spark_cluster(folder: Path, *, workers: int = 2, memory: str = "512m") -> Iterator[SparkCluster]:
    """A master and `workers` workers of one core each, with their logs and work in `folder`."""
    environment = spark_environment() | {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM}
    folder.mkdir(parents=True, exist_ok=True)
    secret = SYSTEM_ENTROPY.token(32).hex()
    environment["SPARK_CONF_DIR"] = str(_configuration(folder / "conf", secret))
    port, page = _free_ports(2)
    master = f"spark://127.0.0.1:{port}"
    with contextlib.ExitStack() as stack:
        commands = [["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]]
        for number in range(workers):
            place = ["--work-dir", str(folder / f"worker-{number}"), "--webui-port", "0"]
            size = ["--cores", "1", "--memory", memory]
            commands.append(["worker.Worker", "--host", "127.0.0.1", *size, *place, master])
        started = [
            stack.enter_context(_running(command, environment, folder / f"{number}.log"))
            for number, command in enumerate(commands)
        ]
        _await_workers(page, workers, started, folder)
        pids = tuple(process.pid for process in started[1:])
        yield SparkCluster(master, environment, pids, memory, secret, folder / "0.log")


def _configuration(folder: Path, secret: str) -> Path:
    """A configuration folder that makes master and workers refuse whoever does not know the secret."""
    folder.mkdir(mode=0o700)
    settings = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret,
        "spark.network.crypto.enabled": "true",
        # Programs that are posted to it are started whoever sends them: it knows nothing of secrets.
        "spark.master.rest.enabled": "false",
    }
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    return folder


def spark_environment() -> dict[str, str]:
    """This process's environment, with what Spark's own scripts need."""
    environment = dict(os.environ)
    prepare_environment(environment, Path(sys.prefix) / "share" / "penstock" / "java")
    return environment | {"SPARK_HOME": str(_spark_home()), "SPARK_LOCAL_IP": "127.0.0.1"}


def descendants(root: int, word: str = "") -> list[int]:
    """The processes below `root` whose command line holds `word`, as they are now."""
    table = _process_table()
    found, level = [], [root]
    while level:
        level = [pid for pid, (parent, _) in table.items() if parent in level]
        found += [pid for pid in level if word in table[pid][1]]
    return found


def python_workers(root: int) -> list[int]:
    """The Python processes below `root` that run tasks; their daemons are not among them."""
    return [pid for pid in descendants(root, _WORKER) if _DAEMON in _process_table().get(_parent(pid), (0, ""))[1]]


def _process_table() -> dict[int, tuple[int, str]]:
    """Parent and command line of every process; one that ends meanwhile is left out."""
    table = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                table[int(entry.name)] = (_parent(int(entry.name)), command)
    return table


def _parent(pid: int) -> int:
    # The name before it is in parentheses, and may hold anything.
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


@contextlib.contextmanager
def _running(command: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    role, *arguments = command
    script = str(_spark_home() / "bin" / "spark-class")
    with log.open("ab") as output:
        process = subprocess.Popen(
            [script, f"org.apache.spark.deploy.{role}", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        # Executors are children of their worker and outlive it.
        for pid in [*descendants(process.pid), process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        process.wait()


def _await_workers(page: int, count: int, started: list[subprocess.Popen[bytes]], folder: Path) -> None:
    end = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < end and all(process.poll() is None for process in started):
        with contextlib.suppress(httpx.HTTPError, ValueError):
            if httpx.get(f"http://127.0.0.1:{page}/json/", timeout=5).json()["aliveworkers"] == count:
                return
        time.sleep(_POLL_SECONDS)
    logs = "\n".join(log.read_text(errors="replace")[-1000:] for log in sorted(folder.glob("*.log")))
    raise RuntimeError(f"the cluster did not come up; its logs end with\n{logs}")


def _spark_home() -> Path:
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
