"""Where a command looks: what a person wrote is a path or a URL, and never quietly the other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.main import penstock
from penstock.errors import InvalidInput
from penstock.indexing.sending.places import Place, place_of, url_of
from penstock.objects.url import parse_url


@pytest.mark.parametrize("store", ["s3:/bucket/prefix", "S3:/bucket", "s3:bucket", "file:folder", "https:/host/x", ""])
def test_a_mistyped_url_is_refused_and_no_folder_of_its_name_is_made(store: str, tmp_path: Path) -> None:
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        with pytest.raises(InvalidInput):
            url_of(store)
        answer = CliRunner().invoke(penstock, ["documents", "list", "--store", store])
        assert answer.exit_code == 1
        assert list(tmp_path.iterdir()) == []
    finally:
        os.chdir(here)


@pytest.mark.parametrize("store", ["data", "./data", "a-b", "notes:2024", "x.y"])
def test_a_path_is_a_directory_here(store: str) -> None:
    assert url_of(store) == f"file://{Path(store).absolute()}"


def test_a_relative_path_may_go_upwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system reads it: behind a link, upwards is the parent of what it leads to."""
    (tmp_path / "here" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "here" / "deep")
    monkeypatch.chdir(tmp_path / "here")
    assert url_of("../store") == f"file://{tmp_path}/store"
    assert url_of("deep/../data") == f"file://{tmp_path}/here/data"
    assert url_of("../link/../data") == f"file://{tmp_path}/here/data"


def test_a_container_is_named_with_its_account_as_its_events_name_it() -> None:
    assert place_of("az://docs/x", account="acme") == Place("az://acme.docs", prefix="x")
    assert place_of("az://bravo.docs", account="acme") == Place("az://bravo.docs")
    assert place_of("az://docs") == Place("az://docs")
    assert place_of("az://docs/x", {"shelf": "az://docs"}, "acme") == Place("shelf", prefix="x")
    assert place_of("s3://docs", account="acme") == Place("docs")
    assert place_of("az://docs/x", account="acme").url == "az://acme.docs/x"


@pytest.mark.parametrize("typed", ["s3//bucket", "gs//bucket/x", "az//c", "S3//bucket", "file//tmp/x", "https//host"])
def test_a_url_whose_colon_is_missing_makes_no_folder_of_that_name(typed: str) -> None:
    with pytest.raises(InvalidInput):
        url_of(typed)


def test_a_folder_whose_name_has_a_line_break_is_that_folder(tmp_path: Path) -> None:
    assert parse_url(url_of(f"{tmp_path}/two\nlines")).place == f"{tmp_path}/two\nlines"
