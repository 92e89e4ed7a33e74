"""One folder that may not be looked into does not end a command, and removes nothing from the index."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import penstock
from penstock.documents import DeleteNotification
from penstock.indexing.sending.unreadable import UnreadableFolders
from penstock.objects import StoreSpec

NOBODY = 65534
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may look anywhere: give that up for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def desk() -> Iterator[Path]:
    """Where somebody without privileges may work, which those of a test usually are not."""
    with without_privileges():
        folder = Path(tempfile.mkdtemp())
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def index(shelf: Path, store: Path) -> Result:
    return CliRunner().invoke(penstock, ["index", str(shelf), "--store", str(store), "--queue-only", "--json"])


def test_a_folder_that_cannot_be_listed_is_named_and_the_others_are_indexed(desk: Path, tmp_path: Path) -> None:
    # Modules are loaded by whoever may read them.
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "note.txt").write_text("Otters live in rivers.")
    assert index(tmp_path / "shelf", tmp_path / "store").exit_code == 0
    with without_privileges():
        for name in ("open", "locked", "open/closed"):
            (desk / "shelf" / name).mkdir(parents=True)
            (desk / "shelf" / name / "note.txt").write_text("Otters live in rivers.")
        (desk / "shelf" / "locked").chmod(0o000)
        (desk / "shelf" / "open" / "closed").chmod(0o444)
        answer = index(desk / "shelf", desk / "store")
        for name in ("locked", "open/closed"):
            (desk / "shelf" / name).chmod(0o700)
    assert answer.exit_code == 0, answer.output
    listed = json.loads(answer.stdout)["listed"]
    assert (listed["to_index"], listed["to_remove"]) == (1, 0)
    why = "it cannot be listed: Permission denied"
    assert [tuple(each.values()) for each in listed["left_out"]] == [("locked/", why), ("open/closed/", why)]


def test_what_could_not_be_seen_is_not_gone() -> None:
    folders = UnreadableFolders()
    spec = folders.passing_over(StoreSpec("file:///shelf", {"read_only": True}))
    spec.options["unreadable"]("locked/")
    events = [
        DeleteNotification(tenant_id="t", index_id="i", model="m", bucket=bucket, key=key, created_at=MOMENT)
        for bucket, key in (("b", "locked/note.txt"), ("b", "locked.txt"), ("other", "locked/note.txt"))
    ]
    assert folders.without_deletions(events, {"b": "file:///shelf", "other": "file:///other"}.__getitem__) == events[1:]
