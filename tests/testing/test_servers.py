"""Real servers: one that this machine lacks is a reason to skip, one that does not come up is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.testing import servers
from penstock.testing.servers import S3Server, ServerMissing, azurite, seaweedfs


def test_a_machine_without_node_has_no_azurite_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerMissing, match="node and npm"), azurite(tmp_path):
        pytest.fail("it started")


def test_a_server_that_dies_at_its_start_is_an_error_that_shows_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "weed"
    broken.write_text("#!/bin/sh\necho no volume today\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(servers.shutil, "which", lambda *_, **__: str(broken))
    with pytest.raises(RuntimeError, match="no volume today"), seaweedfs(tmp_path / "data"):
        pytest.fail("it started")


@pytest.mark.integration
def test_a_bucket_can_be_added(s3_server: S3Server) -> None:
    assert s3_server.create_bucket("another") == "s3://another"
