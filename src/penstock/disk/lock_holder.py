"""Who holds a file lock: from the kernel's list of locks, for the text of an error.

Linux alone has the list, and shows only processes that this one may see. A process that forked while it
held the lock is named though its child may be the one that keeps it: the list remembers who took it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["holder_pid", "lock_holder"]

_UNKNOWN: Final = "another process"
# The states of /proc that explain why a holder does not let go.
_STATES: Final = {
    "T": "stopped",
    "t": "stopped by a debugger",
    "D": "waiting for its disk",
    "Z": "dead, not yet reaped",
}


def lock_holder(path: str) -> str:
    """ "process 4711 (python, stopped)", or as much of it as can be found out."""
    try:
        pid = holder_pid(Path("/proc/locks").read_text(), Path(path).stat().st_ino)
        return _UNKNOWN if pid is None else f"process {pid}{_described(pid)}"
    except OSError:
        return _UNKNOWN


def holder_pid(locks: str, inode: int) -> int | None:
    """From lines like `3: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF`; waiting ones have an arrow, `3: -> FLOCK …`."""
    for line in locks.splitlines():
        fields = line.split()
        if fields[1:2] == ["FLOCK"] and len(fields) > 5 and fields[5].rpartition(":")[2] == str(inode):
            pid = int(fields[4])
            # A holder in another container has no number here.
            return pid if pid > 0 else None
    return None


def _described(pid: int) -> str:
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition(" (")[2].rpartition(") ")
    except OSError:
        return ", which has ended; a child that it forked may keep it"
    state = _STATES.get(rest[:1])
    return f" ({name}, {state})" if state else f" ({name})"
