"""Sockets to listen on, and why an address cannot be had."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Final

from penstock.errors import Unavailable

__all__ = ["check_listening", "listening_sockets", "written_address"]

_BACKLOG: Final = 2_048
_NOT_HERE: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
# What the system says, and what to do about it.
_REASONS: Final = {
    errno.EADDRINUSE: ("another process listens on this port", "end that process, or choose another port"),
    errno.EADDRNOTAVAIL: ("this machine has no such address", "choose one of its own; 0.0.0.0 is all of them"),
    errno.EACCES: ("this user may not use the port", "choose one from 1024 on, or let the service manager grant it"),
}


async def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """One for each address of the host that this machine has; `Unavailable` says why there is none."""
    found: list[socket.socket] = []
    missing: OSError | None = None
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, _, _, _, address in dict.fromkeys(infos):
            # A port that the system chose is the same on every address.
            chosen = found[0].getsockname()[1] if found else port
            try:
                found.append(socket.create_server((address[0], chosen, *address[2:]), family=family, backlog=_BACKLOG))
            except OSError as error:
                # A machine without IPv6 may have `::1 localhost` in its hosts file.
                if error.errno not in _NOT_HERE:
                    raise
                missing = error
        if missing is not None and not found:
            raise missing
    except OSError as error:
        _close(found)
        raise _refused(host, port, error) from error
    return found


async def check_listening(host: str, port: int) -> None:
    """For a library that binds for itself and does not say why it cannot."""
    _close(await listening_sockets(host, port))


def written_address(host: str, port: int) -> str:
    """As it is written in a URL: an address of IPv6 stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _close(sockets: list[socket.socket]) -> None:
    for one in sockets:
        one.close()


def _refused(host: str, port: int, error: OSError) -> Unavailable:
    what = f"the gateway cannot listen on {written_address(host, port)}"
    if isinstance(error, socket.gaierror):
        return Unavailable(what, f"the host cannot be resolved: {error.strerror}", "check `host`")
    why, remedy = _REASONS.get(error.errno or 0, (str(error.strerror or error), "choose another address or port"))
    return Unavailable(what, why, remedy)
