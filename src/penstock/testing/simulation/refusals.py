"""What the simulated loop refuses: everything whose timing the outside world decides, and no seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

from penstock.errors import Unsupported

__all__ = ["REFUSED", "refuse", "refusing_the_outside"]

LoopType = TypeVar("LoopType", bound=type)

_THREADS: Final = "threads run in an order of their own"
_SYSTEM: Final = "the operating system decides when it answers"
_NETWORK: Final = "the network decides when it answers"
_END: Final = "a simulation ends with its main coroutine"

# Method of the loop: the reason that completes "one seed must decide everything, and ...".
REFUSED: Final[dict[str, str]] = {
    **dict.fromkeys(("run_in_executor", "set_default_executor"), _THREADS),
    **dict.fromkeys(("run_forever", "stop"), _END),
    **dict.fromkeys(("add_signal_handler", "remove_signal_handler", "subprocess_exec", "subprocess_shell"), _SYSTEM),
    **dict.fromkeys(("add_reader", "add_writer", "remove_reader", "remove_writer"), _NETWORK),
    **dict.fromkeys(("connect_accepted_socket", "connect_read_pipe", "connect_write_pipe"), _NETWORK),
    **dict.fromkeys(("create_connection", "create_datagram_endpoint", "create_server"), _NETWORK),
    **dict.fromkeys(("create_unix_connection", "create_unix_server", "getaddrinfo", "getnameinfo"), _NETWORK),
    **dict.fromkeys(("sendfile", "start_tls", "sock_accept", "sock_connect", "sock_recv", "sock_recv_into"), _NETWORK),
    **dict.fromkeys(("sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendfile", "sock_sendto"), _NETWORK),
}


def refusing_the_outside(loop: LoopType) -> LoopType:
    """Give a loop class the refused methods."""
    for name, why in REFUSED.items():
        setattr(loop, name, _refusal(name, why))
    return loop


def refuse(name: str, why: str) -> NoReturn:
    raise Unsupported(
        f"loop.{name} was called in a simulation",
        f"one seed must decide everything, and {why}",
        "reach it through a port, and give the simulation a double of that port",
    )


def _refusal(name: str, why: str) -> Callable[..., NoReturn]:
    def refused(_loop: Any, *_arguments: Any, **_options: Any) -> NoReturn:
        refuse(name, why)

    return refused
