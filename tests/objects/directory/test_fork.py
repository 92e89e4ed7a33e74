"""A store behind a fork says so, where it would otherwise wait forever for threads that are gone."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.errors import Unsupported
from penstock.objects import ObjectStore, open_store
from penstock.testing.servers import S3Server


def in_a_fork(ask: Callable[[], Any]) -> str:
    """What a forked process gets for an answer; its alarm ends one that waits forever."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            os.write(writing, repr(ask()).encode())
        except Unsupported as refusal:
            os.write(writing, refusal.why.encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as answer:
        return answer.read().decode()


def body_of(store: ObjectStore) -> bytes:
    return asyncio.run(store.get("object")).data


def test_a_directory_is_refused_behind_a_fork_and_can_be_opened_there(tmp_path: Path) -> None:
    def open_here() -> ObjectStore:
        return asyncio.run(open_store(f"file://{tmp_path}"))

    store = open_here()
    asyncio.run(store.put("object", b"body"))
    assert "forked" in in_a_fork(lambda: body_of(store))
    assert in_a_fork(lambda: body_of(open_here())) == "b'body'"


def test_a_service_is_refused_behind_a_fork_even_if_opened_there(s3_server: S3Server) -> None:
    def open_here() -> ObjectStore:
        return asyncio.run(open_store("s3://penstock/fork", **s3_server.options))

    store = open_here()
    assert "forked" in in_a_fork(lambda: body_of(store))
    assert "forked" in in_a_fork(open_here)
