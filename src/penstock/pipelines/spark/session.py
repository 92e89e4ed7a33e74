"""Opens a Spark session with the settings that the pipelines were measured on.

The same settings serve `local[*]`, a standalone cluster and `spark-submit`; a caller's own settings
win over ours. Spark starts its processes from environment variables, so whoever owns the environment
prepares it first.
"""

from __future__ import annotations

import atexit
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Final

from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from penstock.pipelines.spark.accumulators import settle_accumulators
from penstock.pipelines.spark.class_archive import ClassArchive, archive_name
from penstock.pipelines.spark.java import JavaRuntime, find_java
from penstock.pipelines.spark.spark_home import write_spark_home

__all__ = [
    "SESSION_SETTINGS",
    "abandon_session",
    "class_archive",
    "end_java",
    "open_session",
    "prepare_environment",
]

SESSION_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Sources that take filters are refused without it.
    "spark.sql.python.filterPushdown.enabled": "true",
    # The default forks a process for every checkpoint file: about 100 ms a commit against 30.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # State schemas can evolve only when the encoding was Avro from the first start.
    "spark.sql.streaming.stateStore.encodingFormat": "avro",
    # Python workers answer a quarter faster over a socket file than over TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

_AUTHENTICATE: Final = "spark.authenticate"
# The name of a setting, and not a secret.
_SECRET: Final = "spark.authenticate.secret"  # noqa: S105
# Of a cluster that shares a secret with its applications: what goes over its network, or to its disks, is encrypted.
_SEALED_SETTINGS: Final[Mapping[str, str]] = {
    _AUTHENTICATE: "true",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}
_DRIVER_OPTIONS: Final = "spark.driver.extraJavaOptions"
# As a URI: spaces would end the option.
_QUIET_LOG: Final = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"

_LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    # Whoever has an account on this machine could otherwise hand the driver objects to deserialise. Spark makes up the
    # secret of a local session by itself.
    _AUTHENTICATE: "true",
    # A driver on one machine listens on no other address.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # The JVM plans and passes Arrow on; the work is in Python processes, which need the cores. Compiling lightly and
    # collecting on one thread halves its processor time, from the start to a job's thousandth document.
    _DRIVER_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

# Whether somebody has given up waiting for the end of Java is asked so often.
_LOOK_SECONDS: Final = 0.2

# A cluster gives a task four tries; a local session gives one unless its master says more, and a lost worker ends it.
_TASK_TRIES: Final = 4


def prepare_environment(environment: MutableMapping[str, str], shim_directory: Path) -> JavaRuntime:
    """Point Spark at a Java that works and at this very Python and its packages, unless the caller has chosen others.

    What Spark needs beside the installed packages is written to `shim_directory` and to `spark` next to it.
    """
    java = find_java(environment, shim_directory)
    environment["JAVA_HOME"] = str(java.home)
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        environment.setdefault(variable, sys.executable)
    if "SPARK_HOME" not in environment and (home := write_spark_home(shim_directory.with_name("spark"))):
        environment["SPARK_HOME"] = str(home)
    return java


def open_session(
    master: str | None = "local[*]",
    *,
    name: str = "penstock",
    shuffle_partitions: int = 2,
    settings: Mapping[str, str] | None = None,
    java_options: str = "",
) -> SparkSession:
    """A session on `master`, or the running one when there is one already.

    `local[N]` becomes `local[N,4]`: a task whose Python process is lost is tried again, as on a cluster. None leaves
    the choice to whoever started this program: `spark-submit --master …`. With `spark.authenticate.secret` among the
    settings, a cluster is spoken to with authentication and encryption, which its own configuration must ask for too.
    `java_options` come last in the driver's.
    """
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(retrying(master))
    own = dict(settings or {})
    if master is not None and master.startswith("local"):
        place: Mapping[str, str] = {**_LOCAL_SETTINGS, **_private_folders()}
    else:
        place = _SEALED_SETTINGS if _SECRET in own else {}
    shuffle = {"spark.sql.shuffle.partitions": str(shuffle_partitions)}
    chosen = {**SESSION_SETTINGS, **place, **shuffle, **own}
    # Joined and not replaced: a caller that tunes the driver's JVM still gets a quiet log.
    chosen[_DRIVER_OPTIONS] = " ".join(filter(None, (_QUIET_LOG, chosen.get(_DRIVER_OPTIONS), java_options)))
    for key, value in chosen.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    settle_accumulators(session.sparkContext)
    return session


def abandon_session() -> bool:
    """End the Java process of a session that is being opened and that nobody waits for. False while it has none.

    A process that has just been started ends by itself with this one, whose pipe it reads.
    """
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return False
    with suppress(OSError):
        process.kill()
    return True


def class_archive(java: JavaRuntime, folder: Path, master: str) -> ClassArchive | None:
    """The archive of classes for sessions on `master`; None where Java is started elsewhere."""
    if not master.startswith("local"):
        return None
    home = Path(_find_spark_home())
    options = (*_LOCAL_SETTINGS[_DRIVER_OPTIONS].split(), _QUIET_LOG)
    return ClassArchive(folder, archive_name(java, home, options), java.version)


def end_java(seconds: float, give_up: Callable[[], bool] = lambda: False) -> bool:
    """End the Java process of a session that was stopped, and wait for it. False if it goes on longer, or `give_up`."""
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return False
    gateway.shutdown()
    # A session that is opened later starts another one.
    SparkContext._gateway = SparkContext._jvm = None
    with suppress(OSError):
        # It reads from this end, and ends with it.
        process.stdin.close()
    for _ in range(int(seconds / _LOOK_SECONDS)):
        with suppress(TimeoutExpired):
            return bool(process.wait(_LOOK_SECONDS) == 0)
        if give_up():
            break
    return False


def _private_folders() -> dict[str, str]:
    """Where Spark keeps blocks and sockets: documents pass through them, and Spark makes its folders for everybody."""
    if SparkSession.getActiveSession() is not None:
        return {}
    folder = tempfile.mkdtemp(prefix="penstock-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return {"spark.local.dir": folder, "spark.python.unix.domain.socket.dir": folder}


def retrying(master: str) -> str:
    """`master`, with tries for its tasks where it is a local one that names none."""
    found = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    return f"local[{found.group(1) or 1},{_TASK_TRIES}]" if found else master
