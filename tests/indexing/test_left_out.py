"""What of a folder cannot be indexed is told, and nothing else is."""

from __future__ import annotations

import os
from pathlib import Path

from click.testing import CliRunner

from penstock.cli.main import penstock
from penstock.indexing.sending.left_out import files_left_out


def test_links_devices_and_names_that_are_no_keys_are_told_with_the_reason(tmp_path: Path) -> None:
    for name in ("fine.txt", "new\nline.txt", "back\\slash.txt", "sub/also fine #1%.txt", ".hidden/\n.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    (tmp_path / "sub" / "loop").symlink_to("..")
    (tmp_path / "link.txt").symlink_to("fine.txt")
    os.mkfifo(tmp_path / "pipe")
    found = {each.path: each.reason for each in files_left_out(tmp_path)}
    assert set(found) == {"new\nline.txt", "back\\slash.txt", "sub/loop", "link.txt", "pipe"}
    assert found["sub/loop"] == found["link.txt"] == "it is a link"
    assert found["pipe"] == "it is no file"


def test_the_store_itself_is_not_looked_into(tmp_path: Path) -> None:
    (tmp_path / "penstock-data").mkdir()
    (tmp_path / "penstock-data" / "link").symlink_to("x")
    assert files_left_out(tmp_path, tmp_path / "penstock-data") == []


def test_a_person_who_indexes_a_folder_is_told_what_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "new\nline.txt").write_text("x")
    arguments = ["index", str(tmp_path / "shelf"), "--store", str(tmp_path / "store"), "--queue-only"]
    answer = CliRunner().invoke(penstock, arguments)
    assert answer.exit_code == 0
    assert r"left out: 'new\nline.txt'" in answer.output
    assert '"left_out": [{"path": "new\\nline.txt"' in CliRunner().invoke(penstock, [*arguments, "--json"]).output


def test_an_empty_path_is_refused_and_not_taken_for_this_folder(tmp_path: Path) -> None:
    answer = CliRunner().invoke(penstock, ["index", "", "--store", str(tmp_path / "store")])
    assert answer.exit_code == 1
    assert "empty path" in answer.output
    assert not (tmp_path / "store").exists()
