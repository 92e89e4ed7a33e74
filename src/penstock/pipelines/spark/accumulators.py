"""Keeps Spark's accumulator server from printing a traceback when Java ends before the driver.

A signal for the whole process group ends both at once. The server then finds its connection closed and prints what it
read last, after the driver has ended in good order. Any other error is still printed.
"""

from __future__ import annotations

import socketserver
import sys
from typing import Any

from pyspark import SparkContext

__all__ = ["expect_end_of_java", "settle_accumulators"]


def settle_accumulators(context: SparkContext) -> None:
    """For the server of this context; calling it again changes nothing."""
    server = getattr(context, "_accumulatorServer", None)
    if isinstance(server, socketserver.BaseServer):
        expect_end_of_java(server)


def expect_end_of_java(server: socketserver.BaseServer) -> None:
    """Let a closed connection pass without a word."""

    def handle_error(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), (EOFError, ConnectionError)):
            type(server).handle_error(server, request, client_address)

    vars(server)["handle_error"] = handle_error
