"""What an error of the operating system means to the caller of a store."""

from __future__ import annotations

import errno
from typing import Final

from penstock.errors import InvalidInput, NotFound, PenstockError, PermissionDenied, StorageFull, Unavailable

__all__ = ["explain", "is_full"]

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DENIED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_CLASH: Final = frozenset({errno.ENOTDIR, errno.EISDIR})


def is_full(error: OSError) -> bool:
    return error.errno in _FULL


def explain(what: str, error: OSError) -> PenstockError:
    """The error for a call that has written nothing."""
    if is_full(error):
        remedy = "free some room, or drain what is queued; nothing was written"
        return StorageFull(what, f"the disk is full: {error.strerror}", remedy)
    if error.errno in _DENIED:
        return PermissionDenied(what, str(error), "check the owner, mode and mount of the directory")
    if error.errno == errno.ENAMETOOLONG:
        return InvalidInput(what, "a name is too long for this file system", "keep segments under 255 bytes")
    if error.errno == errno.ELOOP:
        return InvalidInput(what, "its path contains a symbolic link", "name the link's target as the store")
    if error.errno in _CLASH:
        why = f"a name cannot be both a file and a directory: {error.filename or error.strerror}"
        return InvalidInput(what, why, "choose another path, or another key")
    if error.errno == errno.ENOENT:
        return NotFound(what, "the directory does not exist", "create it, or mount its disk, then open it again")
    return Unavailable(what, str(error), "check the disk")
