"""A directory that survives the loss of power under a store that never syncs.

SlateDB writes each object to a temporary name and renames it, without any fsync. Two things make that
safe. New files inherit the kernel's synchronous flag (`chattr +S`), so a name never appears before
its contents are on the disk, whatever the order of log, manifest and compaction; and before a write is
called durable one `syncfs` puts the names themselves on the disk. Where a file system does not know
the flag, only the second holds: nothing acknowledged is lost, but a store may need its last, never
acknowledged files removed by hand after a power loss, and `ordered` says so.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

from penstock.errors import InvalidInput, NotFound, PenstockError, PermissionDenied, StorageFull, Unavailable

__all__ = ["DurableDirectory", "check_readable"]

# From linux/fs.h: read and write an inode's flags, and the flag that makes its writes synchronous.
_GET_FLAGS: Final = 0x80086601
_SET_FLAGS: Final = 0x40086602
_SYNCHRONOUS: Final = 0x00000008
_FLAGS: Final = struct.Struct("l")

# From linux/posix_acl_xattr.h: what a new file or folder may at most be used for, as its parent says; all to its owner,
# nothing to its group and others. SlateDB asks for 0644 whatever the folder's own mode is.
_DEFAULT_RIGHTS: Final = "system.posix_acl_default"
_NOBODY: Final = 0xFFFFFFFF
_OWNER_ALONE: Final = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, rights, _NOBODY) for tag, rights in ((0x01, 7), (0x04, 0), (0x20, 0))
)

_PROBE: Final = ".penstock-probe"


class DurableDirectory:
    """The directory of one store, made ready for writing."""

    def __init__(self, folder: Path) -> None:
        """Create `folder`, check that it can be written, and have its files written synchronously."""
        self.folder = folder
        try:
            _make(folder)
            _keep_private(folder)
            self.ordered = _make_synchronous(folder)
            self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise _refused(folder, error) from error
        self._failure: OSError | None = None
        # Closed when the last reference goes, which a sync under way in a thread holds too.
        weakref.finalize(self, os.close, self._descriptor)

    def sync(self) -> None:
        """Put everything written so far on the disk.

        A sync that failed fails for ever: the kernel drops the pages it could not write, and a second
        try would succeed without them.
        """
        if self._failure is not None:
            raise self._failure
        try:
            _syncfs(self._descriptor)
        except OSError as error:
            self._failure = error
            raise


def _make(folder: Path) -> None:
    """For its owner alone, and so is all that SlateDB makes in it, with whatever mode."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)
    # Refuses a file that lies there.
    folder.mkdir(exist_ok=True)


def _keep_private(folder: Path) -> None:
    """Where others may not enter `folder`, let its files say so too: they keep their modes when they are copied."""
    if folder.stat().st_mode & 0o077:
        return
    for parent, _, _ in os.walk(folder):
        # Another user's folder, or a file system without such rights: the mode of `folder` still holds.
        with suppress(OSError, AttributeError):
            Path(parent).chmod(0o700)
            os.setxattr(parent, _DEFAULT_RIGHTS, _OWNER_ALONE)


def check_readable(folder: Path) -> None:
    """Refuse a follower of a directory that is not there."""
    try:
        with os.scandir(folder):
            pass
    except OSError as error:
        raise _refused(folder, error) from error


def _make_synchronous(folder: Path) -> bool:
    """Set the flag on the directory and what it holds; whether a new file inherits it."""
    for parent, _, _ in os.walk(folder):
        _add_flag(Path(parent), _SYNCHRONOUS)
    probe = folder / _PROBE
    try:
        probe.write_bytes(b"x")
        return bool(_flags(probe) & _SYNCHRONOUS)
    finally:
        probe.unlink(missing_ok=True)


def _flags(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return int(_FLAGS.unpack(fcntl.ioctl(descriptor, _GET_FLAGS, _FLAGS.pack(0)))[0])
    except OSError:
        return 0
    finally:
        os.close(descriptor)


def _add_flag(path: Path, flag: int) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        present = _FLAGS.unpack(fcntl.ioctl(descriptor, _GET_FLAGS, _FLAGS.pack(0)))[0]
        if not present & flag:
            fcntl.ioctl(descriptor, _SET_FLAGS, _FLAGS.pack(present | flag))
    except OSError:
        # Not every file system has flags; the probe finds out what that means.
        return
    finally:
        os.close(descriptor)


def _syncfs(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):
        os.sync()
    elif libc.syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _refused(folder: Path, error: OSError) -> PenstockError:
    what, why = f"the directory {str(folder)!r} cannot hold a key-value store", error.strerror or str(error)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return PermissionDenied(what, why, "let this user write there, or choose another directory")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(what, why, "free some space")
    if error.errno in (errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP):
        return InvalidInput(what, why, "choose another directory")
    if error.errno == errno.ENOENT:
        return NotFound(f"the directory {str(folder)!r} does not exist", why, "create it, or mount its disk")
    return Unavailable(what, why, "check the disk")
