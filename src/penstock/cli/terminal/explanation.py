"""An error for a person: what happened, why, and what to do, on the terminal's second channel."""

from __future__ import annotations

import errno
from typing import Final

from penstock.cli.terminal.terminal_text import terminal_text
from penstock.errors import InvalidInput, NotFound, PenstockError, PermissionDenied, StorageFull, Unavailable

__all__ = ["explain", "system_refusal"]

_PERMISSIONS: Final = "check the owner and the mode of the file and of its folder"
_ROOM: Final = "free some room on this disk"
# What the operating system says most often, and what to do about it.
_REFUSALS: Final[dict[int, tuple[type[PenstockError], str]]] = {
    errno.ENOENT: (NotFound, "check the path; a new file needs a folder that exists"),
    errno.EACCES: (PermissionDenied, _PERMISSIONS),
    errno.EPERM: (PermissionDenied, _PERMISSIONS),
    errno.EROFS: (PermissionDenied, "choose a place on a file system that can be written"),
    errno.ENOSPC: (StorageFull, _ROOM),
    errno.EDQUOT: (StorageFull, _ROOM),
    errno.EISDIR: (InvalidInput, "name a file, not a folder"),
    errno.ENOTDIR: (InvalidInput, "name a folder, not a file"),
    errno.EMFILE: (Unavailable, "raise the limit of open files (`ulimit -n`)"),
}


def explain(error: PenstockError) -> None:
    from rich.console import Console

    console = Console(stderr=True, emoji=False, highlight=False, soft_wrap=True)
    console.print(f"[bold red]{type(error).__name__}[/]: ", end="")
    console.print(terminal_text(error.what), markup=False)
    if error.why:
        console.print(f"  why:    {terminal_text(error.why)}", markup=False)
    if error.remedy:
        console.print(f"  remedy: {terminal_text(error.remedy)}", markup=False)


def system_refusal(error: OSError) -> PenstockError:
    """An error of the operating system that no part of the house has explained."""
    kind, remedy = _REFUSALS.get(error.errno or 0, (PenstockError, "check the file, its disk and the network"))
    what = f"{error.filename} cannot be used" if error.filename else "the system refused"
    return kind(what, error.strerror or str(error), remedy)
