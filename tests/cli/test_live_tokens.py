"""The token file of a running gateway: changed, damaged, gone."""

import errno
from pathlib import Path

import pytest

from penstock.cli.serving.live_tokens import LiveTokens
from penstock.errors import Corrupt
from penstock.gateway import Scope, TokenBook
from penstock.gateway.access.tokens import Unauthenticated
from penstock.observability import names
from penstock.testing import ManualClock, RecordingObserver


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


def _spoiled(path: Path, fault: str) -> None:
    if fault == "damaged":
        _written(path, b"{")
    elif fault == "deleted":
        path.unlink()
    elif fault == "replaced by a directory":
        path.unlink()
        path.mkdir()
    else:
        path.chmod(0o644)


@pytest.mark.parametrize("fault", ["damaged", "deleted", "replaced by a directory", "readable by others"])
def test_a_file_that_cannot_be_used_is_told_once_and_shown_until_it_is_mended(
    file: tuple[Path, str], fault: str
) -> None:
    path, _ = file
    observer, clock = RecordingObserver(), ManualClock()
    live, whole = LiveTokens(str(path), observer, clock), path.read_bytes()
    assert observer.gauged(names.GATEWAY_TOKENS_REFUSED) == 0
    _spoiled(path, fault)
    live(), live()
    (told,) = observer.events(names.GATEWAY_TOKENS_UNUSABLE)
    assert "tokens.json" in told["error"]
    assert observer.gauged(names.GATEWAY_TOKENS_REFUSED) == 1
    if path.is_dir():
        path.rmdir()
    _written(path, whole)
    live(), live()
    assert observer.gauged(names.GATEWAY_TOKENS_REFUSED) == 0
    assert len(observer.events(names.GATEWAY_TOKENS_READ)) == 1


def test_a_revocation_counts_as_soon_as_others_cannot_read_the_file_any_more(file: tuple[Path, str]) -> None:
    path, token = file
    live = LiveTokens(str(path))
    book = TokenBook.load(path)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(book.without(next(iter(book.entries))).encode())
    fresh.chmod(0o644)
    fresh.replace(path)
    assert _tenant(live, token) == "acme"
    path.chmod(0o600)
    with pytest.raises(Unauthenticated):
        _tenant(live, token)


def test_a_file_that_could_not_be_read_for_a_moment_is_read_again(
    file: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, token = file
    clock = ManualClock()
    live, book = LiveTokens(str(path), clock=clock), TokenBook.load(path)
    _written(path, book.without(next(iter(book.entries))).encode())
    with monkeypatch.context() as busy:
        busy.setattr(Path, "open", _out_of_files)
        assert _tenant(live, token) == "acme"
    clock.advance(1.0)
    with pytest.raises(Unauthenticated):
        _tenant(live, token)


def test_a_folder_that_may_not_be_entered_keeps_the_tokens(
    file: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, token = file
    observer = RecordingObserver()
    live = LiveTokens(str(path), observer)

    def denied(*_args: object, **_options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", denied)
    monkeypatch.setattr(Path, "open", denied)
    assert _tenant(live, token) == "acme"
    assert observer.gauged(names.GATEWAY_TOKENS_REFUSED) == 1


def _out_of_files(*_args: object, **_options: object) -> None:
    raise OSError(errno.EMFILE, "Too many open files")
