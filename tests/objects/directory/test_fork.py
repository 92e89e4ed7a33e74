"""A store behind a fork says so, where it would otherwise wait forever for threads that are gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.forks import in_a_fork

from penstock.objects import ObjectStore, open_store
from penstock.testing.servers.object_stores import S3Server


def body_of(store: ObjectStore) -> bytes:
    return asyncio.run(store.get("object")).data


@pytest.mark.processes
def test_a_directory_is_refused_behind_a_fork_and_can_be_opened_there(tmp_path: Path) -> None:
    def open_here() -> ObjectStore:
        return asyncio.run(open_store(f"file://{tmp_path}"))

    store = open_here()
    asyncio.run(store.put("object", b"body"))
    assert "forked" in in_a_fork(lambda: body_of(store))
    assert in_a_fork(lambda: body_of(open_here())) == "b'body'"


@pytest.mark.processes
def test_a_service_is_refused_behind_a_fork_even_if_opened_there(s3_server: S3Server) -> None:
    def open_here() -> ObjectStore:
        return asyncio.run(open_store("s3://penstock/fork", **s3_server.options))

    store = open_here()
    assert "forked" in in_a_fork(lambda: body_of(store))
    assert "forked" in in_a_fork(open_here)
