"""The token file of a running gateway: changed, damaged, gone."""

from pathlib import Path

import pytest

from penstock.cli.serving.live_tokens import LiveTokens
from penstock.errors import Corrupt
from penstock.gateway import Scope, TokenBook
from penstock.gateway.access.tokens import Unauthenticated


@pytest.fixture
def file(tmp_path: Path) -> tuple[Path, str]:
    path = tmp_path / "tokens.json"
    book, token = TokenBook.new().issue("acme", [Scope.READ], 0)
    book.save(path, replaces=None)
    return path, token


def _written(path: Path, data: bytes) -> None:
    """As another file, so that it is seen to have changed whatever the clock says."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(data)
    fresh.chmod(0o600)
    fresh.replace(path)


def _tenant(live: LiveTokens, token: str) -> str:
    book = live()
    assert book is not None
    return book.authenticate(f"Bearer {token}", 0).tenant


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff\xfe", b'{"version": 99}'])
def test_a_file_that_is_damaged_while_it_runs_lets_nobody_new_in_and_nobody_out(
    file: tuple[Path, str], damage: bytes
) -> None:
    path, token = file
    live, whole = LiveTokens(str(path)), path.read_bytes()
    _written(path, damage)
    assert _tenant(live, token) == "acme"
    with pytest.raises(Unauthenticated):
        _tenant(live, "pst_made_up")
    _written(path, whole)
    assert _tenant(live, token) == "acme"


def test_a_file_that_is_gone_lets_nobody_in(file: tuple[Path, str]) -> None:
    path, token = file
    live = LiveTokens(str(path))
    path.unlink()
    with pytest.raises(Unauthenticated):
        _tenant(live, token)


def test_a_gateway_does_not_start_on_a_damaged_file(file: tuple[Path, str]) -> None:
    path, _ = file
    _written(path, b"{")
    with pytest.raises(Corrupt, match=r"tokens\.json"):
        LiveTokens(str(path))
