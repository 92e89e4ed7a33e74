"""Real servers: one that this machine lacks is a reason to skip, one that does not come up is an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.testing.servers import object_stores
from penstock.testing.servers.object_stores import S3Server, ServerMissing, azurite, seaweedfs


def test_a_machine_without_node_has_no_azurite_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerMissing, match="node and npm"), azurite(tmp_path):
        pytest.fail("it started")


def test_every_package_of_azurite_is_locked_by_its_hash() -> None:
    lock = json.loads((object_stores._AZURITE_LOCK / "package-lock.json").read_bytes())["packages"]
    wanted = json.loads((object_stores._AZURITE_LOCK / "package.json").read_bytes())["dependencies"]
    assert wanted == lock.pop("")["dependencies"] == {"azurite": object_stores.AZURITE_VERSION}
    assert lock["node_modules/azurite"]["version"] == object_stores.AZURITE_VERSION
    assert [name for name, package in lock.items() if not package.get("integrity", "").startswith("sha512-")] == []
    # Whoever fetches says from where; and nothing but files is installed.
    assert not any("resolved" in package or "hasInstallScript" in package for package in lock.values())


def test_azurite_is_fetched_as_it_is_locked_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for npm that says what it was asked, and in which folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    asking = tmp_path / "bin"
    asking.mkdir()
    for name in ("node", "npm"):
        (asking / name).write_text('#!/bin/sh\necho "asked: $*" >&2\nfor last; do :; done\nls "$last" >&2\nexit 1\n')
        (asking / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{asking}:/usr/bin:/bin")
    with pytest.raises(ServerMissing) as missing, azurite(tmp_path / "data"):
        pytest.fail("it started")
    asked = str(missing.value)
    assert "asked: ci --ignore-scripts" in asked
    assert "package-lock.json\npackage.json" in asked
    assert list((tmp_path / "cache" / "penstock").iterdir()) == []


def test_a_server_that_dies_at_its_start_is_an_error_that_shows_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "weed"
    broken.write_text("#!/bin/sh\necho no volume today\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(object_stores.shutil, "which", lambda *_, **__: str(broken))  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="no volume today"), seaweedfs(tmp_path / "data"):
        pytest.fail("it started")


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_ended_before_it_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two at once would be at odds over the folder, and neither would come up."""
    silent, earlier = tmp_path / "weed", tmp_path / "earlier"
    silent.write_text(
        f'#!/bin/sh\n[ -e {earlier} ] && kill -0 "$(cat {earlier})" && echo two at once\necho $$ >{earlier}\nexec sleep 60\n'
    )
    silent.chmod(0o755)
    monkeypatch.setattr(object_stores.shutil, "which", lambda *_, **__: str(silent))  # type: ignore[attr-defined]
    monkeypatch.setattr(object_stores, "START_SECONDS_MAX", 1.0)
    with pytest.raises(RuntimeError, match="did not come up") as failed, seaweedfs(tmp_path / "data"):
        pytest.fail("it started")
    assert "two at once" not in str(failed.value)


@pytest.mark.integration
def test_a_bucket_can_be_added(s3_server: S3Server) -> None:
    assert s3_server.create_bucket("another") == "s3://another"
