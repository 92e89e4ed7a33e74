"""`penstock doctor` tells what is there, and fails when something is not."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli import penstock
from penstock.documents.parsers import Layer, Sandbox


def test_doctor_names_the_java_and_the_libraries_in_use() -> None:
    answer = CliRunner().invoke(penstock, ["doctor"])
    assert answer.exit_code == 0, answer.output
    for word in ("python", "java", "obstore", "slatedb", "pyspark"):
        assert word in answer.output


def test_doctor_probes_a_store(tmp_path: Path) -> None:
    answer = CliRunner().invoke(penstock, ["doctor", "--store", f"file://{tmp_path}/store"])
    assert answer.exit_code == 0, answer.output
    assert "conditional writes are enforced" in answer.output


def test_doctor_takes_a_path_as_every_other_store_option_does(tmp_path: Path) -> None:
    answer = CliRunner().invoke(penstock, ["doctor", "--store", str(tmp_path / "store")])
    assert answer.exit_code == 0, answer.output
    assert f"file://{tmp_path}/store: conditional writes are enforced" in answer.output


@pytest.mark.parametrize("url", ["", "ftp://host/x", "s3://", "file://relative"])
def test_a_store_url_that_cannot_be_used_is_refused_with_a_remedy(url: str) -> None:
    answer = CliRunner().invoke(penstock, ["doctor", "--store", url])
    assert answer.exit_code == 1
    assert "InvalidInput" in answer.output
    assert "remedy" in answer.output


def test_doctor_tells_what_confines_parsers_and_what_the_kernel_lacks_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = CliRunner().invoke(penstock, ["doctor"])
    for layer in ("hard limits", "no_new_privs", "network namespace", "landlock", "capabilities", "seccomp"):
        assert f"parsers: {layer}" in answer.output
    lacking = (Layer("seccomp", "Operation not permitted"),)
    monkeypatch.setattr(Sandbox, "layers", lambda self: lacking)
    answer = CliRunner().invoke(penstock, ["doctor"])
    assert answer.exit_code == 0, answer.output
    assert "absent" in answer.output
    assert "Operation not permitted" in answer.output
