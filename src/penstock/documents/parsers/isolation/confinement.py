"""What a parser's process gives up before it sees a byte of a document.

In this order: every descriptor but its two pipes; the right to files, processes, memory and time beyond hard limits;
new privileges; the network, through a namespace of its own; files, through Landlock, but for reading what an
interpreter needs; the privileges of root; and the system calls that it has no use for, through seccomp. The last four
depend on the kernel: each is tried, and what is missing is told and never fatal.
"""

from __future__ import annotations

import os
import resource
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from penstock.documents.parsers.formats import ParserLimits
from penstock.documents.parsers.isolation.kernel import (
    architecture,
    drop_capabilities,
    no_new_privileges,
    set_filter,
    unshare,
)
from penstock.documents.parsers.isolation.landlock import restrict_files
from penstock.documents.parsers.isolation.seccomp import filter_program

__all__ = ["Layer", "confine", "confine_with_threads", "own_pipes"]

_NEW_IPC: Final = 0x08000000
_NEW_USER: Final = 0x10000000
_NEW_NETWORK: Final = 0x40000000

# Pipes, a few modules and libraries that are being loaded.
_DESCRIPTORS_MAX: Final = 64
# Loading the parsers counts as processor time too.
_STARTUP_SECONDS: Final = 10
# Where libraries of the system and what they read at start lie; none of it is anybody's secret.
_SYSTEM: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/etc/localtime")
_DEVICES: Final = ("/dev/null", "/dev/urandom", "/usr/share/zoneinfo")
# Where libraries that size their threads and memory look. DuckDB ends its process when it may not. A rule for one file of
# `/proc` is lost when the kernel makes that file anew; what other processes hold there Landlock keeps to itself.
_MEASURES: Final = ("/proc", "/sys/fs/cgroup")
_LIBRARY_NAMES: Final = ("site-packages", "dist-packages")


class Layer(msgspec.Struct, frozen=True, array_like=True):
    """One part of the confinement: what it is, and why it is missing where it is."""

    name: str
    missing: str = ""


def own_pipes() -> tuple[int, int]:
    """The pipes that a process got as its input and output, moved out of the way of whoever prints or asks."""
    inbound, outbound = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.closerange(max(inbound, outbound) + 1, _DESCRIPTORS_MAX)
    return inbound, outbound


def confine(limits: ParserLimits) -> tuple[Layer, ...]:
    """Give up everything above, for good; the layers that hold and those that do not."""
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("hard limits", lambda: _limit_resources(limits)),
        ("no_new_privs", no_new_privileges),
        ("network namespace", _leave_network),
        ("landlock", lambda: restrict_files(readable_paths())),
        ("capabilities", drop_capabilities),
        ("seccomp", _filter_calls),
    )
    return tuple(_tried(name, step) for name, step in steps)


def confine_with_threads() -> tuple[Layer, ...]:
    """The same for a process that computes on threads and bounds its memory itself; before it has more than one."""
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("no_new_privs", no_new_privileges),
        ("network namespace", _leave_network),
        ("landlock", lambda: restrict_files((*readable_paths(), *map(Path, _MEASURES)))),
        ("capabilities", drop_capabilities),
        ("seccomp", lambda: _filter_calls(threads=True)),
    )
    return tuple(_tried(name, step) for name, step in steps)


def readable_paths() -> Iterator[Path]:
    """The interpreter, its libraries and this package. A folder on the path that is nobody's library is left out."""
    yield from map(Path, (*_SYSTEM, *_DEVICES))
    yield from (Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    yield Path(__file__).parents[3]
    for entry in map(Path, sys.path):
        if entry.is_file() or entry.is_relative_to(sys.base_prefix) or _holds_libraries(entry):
            yield entry


def _holds_libraries(folder: Path) -> bool:
    """Whether packages were installed there: a folder of somebody's own files has no records of that."""
    return folder.name in _LIBRARY_NAMES or next(folder.glob("*.dist-info"), None) is not None


def _tried(name: str, step: Callable[[], object]) -> Layer:
    try:
        step()
    except OSError as error:
        return Layer(name, error.strerror or str(error) or type(error).__name__)
    except (AttributeError, ValueError) as error:
        return Layer(name, str(error))
    return Layer(name)


def _limit_resources(limits: ParserLimits) -> None:
    # Twice what one document may take: a process that has used half of it is given no other.
    seconds = 2 * limits.cpu_seconds + _STARTUP_SECONDS
    bounds = {
        resource.RLIMIT_AS: limits.memory_bytes,
        # A core file of a parser holds the document: it stays where access to it is checked.
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: _DESCRIPTORS_MAX,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_CPU: seconds,
    }
    for kind, bound in bounds.items():
        _, hard = resource.getrlimit(kind)
        size = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(kind, (size, size))


def _leave_network() -> None:
    try:
        unshare(_NEW_USER | _NEW_NETWORK | _NEW_IPC)
    except OSError:
        # Where namespaces of users are switched off, root may still leave the network.
        unshare(_NEW_NETWORK | _NEW_IPC)


def _filter_calls(*, threads: bool = False) -> None:
    machine = architecture()
    if machine is None:
        raise OSError("only known on Linux with x86_64 or aarch64")
    set_filter(filter_program(machine, os.getpid(), threads=threads))
