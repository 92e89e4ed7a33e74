"""Tokens: of one tenant, found by id, kept as digests, refused without a hint."""

import pytest

from penstock.errors import Conflict, Corrupt, InvalidInput, NotFound, PermissionDenied
from penstock.gateway import Scope, TokenBook
from penstock.gateway.access.tokens import Unauthenticated, is_readable_by_others

NOW = 1_700_000_000_000


def issued(**given):
    return TokenBook.new().issue("acme", [Scope.WRITE, Scope.READ], NOW, **given)


def test_a_token_is_its_tenants_and_has_its_scopes():
    book, token = issued()
    found = book.authenticate(f"Bearer {token}", NOW)
    assert (found.tenant, found.scopes) == ("acme", {Scope.WRITE, Scope.READ})


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Basic YTpi", "Bearer pst_x_y", "Bearer pst_aaaaaaaaaaaaaaaa_" + "A" * 43, "\x00"],
)
def test_whatever_else_is_sent_is_refused_in_the_same_words(header):
    book, _ = issued()
    with pytest.raises(Unauthenticated) as refused:
        book.authenticate(header, NOW)
    assert str(refused.value) == "the request is not authenticated: it carries no valid token"


def test_a_changed_secret_and_another_books_token_are_refused():
    book, token = issued()
    other, _ = issued()
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    changed = [token[:-1] + letter for letter in letters if letter != token[-1]]
    for header, where in [*((one, book) for one in changed), (token, other)]:
        with pytest.raises(Unauthenticated):
            where.authenticate(f"Bearer {header}", NOW)


def test_a_token_ends_when_it_expires_and_when_it_is_revoked():
    book, token = issued(expires_at_ms=NOW + 10)
    assert book.authenticate(f"bearer {token}", NOW + 9).tenant == "acme"
    with pytest.raises(Unauthenticated):
        book.authenticate(f"Bearer {token}", NOW + 10)
    revoked = book.without(token.split("_")[1])
    with pytest.raises(Unauthenticated):
        revoked.authenticate(f"Bearer {token}", NOW)
    with pytest.raises(NotFound):
        revoked.without(token.split("_")[1])


@pytest.mark.parametrize("tenant", ["", "Penstock-internal", "a/b", "..", "a" * 65, "ä", "_x"])
def test_a_tenant_that_could_meet_the_houses_own_names_gets_no_token(tenant):
    with pytest.raises(InvalidInput):
        TokenBook.new().issue(tenant, [Scope.READ], NOW)


def test_the_file_holds_no_secret_and_comes_back(tmp_path):
    book, token = issued(note="laptop")
    path = tmp_path / "tokens.json"
    book.save(path, replaces=None)
    assert token.split("_", 2)[2] not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert TokenBook.load(path).authenticate(f"Bearer {token}", NOW).tenant == "acme"


def test_a_file_that_others_may_read_is_not_used(tmp_path):
    book, _ = issued()
    path = tmp_path / "tokens.json"
    book.save(path, replaces=None)
    path.chmod(0o644)
    with pytest.raises(PermissionDenied, match="chmod 600"):
        TokenBook.load(path)


def test_two_changes_at_once_do_not_lose_a_token(tmp_path):
    first, _ = issued()
    path = tmp_path / "tokens.json"
    first.save(path, replaces=None)
    second, _ = first.issue("b", [Scope.READ], NOW)
    third, _ = first.issue("c", [Scope.READ], NOW)
    second.save(path, replaces=first)
    with pytest.raises(Conflict):
        third.save(path, replaces=first)


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"version": 1, "key": "!", "tokens": []}', b"\xff"])
def test_a_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "tokens.json"
    path.write_bytes(damage)
    path.chmod(0o600)
    with pytest.raises(Corrupt, match=r"tokens\.json"):
        TokenBook.load(path)


@pytest.mark.parametrize(
    ("mode", "owner", "user", "is_open"),
    [
        (0o100600, 10001, 10001, False),
        (0o100400, 10001, 10001, False),
        (0o100640, 10001, 10001, True),
        (0o100604, 10001, 10001, True),
        # What an orchestrator mounts for the group of a pod.
        (0o100440, 0, 10001, False),
        (0o100640, 0, 10001, False),
        (0o100660, 0, 10001, True),
        (0o100644, 0, 10001, True),
        (0o100440, 0, 0, True),
    ],
)
def test_a_token_file_is_for_its_owner_and_one_that_root_mounts_for_the_group(mode, owner, user, is_open):
    assert is_readable_by_others(mode, owner, user) is is_open


def test_a_folder_in_the_place_of_the_token_file_is_named(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read"):
        TokenBook.load(tmp_path)


def test_a_token_file_that_cannot_be_written_is_named_and_not_its_temporary_file(tmp_path):
    book, _ = TokenBook.new().issue("acme", [Scope.READ], 0)
    path = tmp_path / "nowhere" / "tokens.json"
    with pytest.raises(NotFound) as refused:
        book.save(path, replaces=None)
    assert refused.value.what == f"{path} cannot be written"
    assert "create it" in refused.value.remedy
