"""The parsers have a name that changes with them."""

from __future__ import annotations

import string

import pytest

from penstock.documents.parsers import parser_fingerprint, rule


def test_the_name_is_the_same_until_a_library_has_another_release(monkeypatch: pytest.MonkeyPatch) -> None:
    first = parser_fingerprint()
    assert len(first) == 16
    assert set(first) <= set(string.hexdigits)
    parser_fingerprint.cache_clear()
    assert parser_fingerprint() == first
    parser_fingerprint.cache_clear()
    try:
        monkeypatch.setattr(rule, "version", lambda name: f"another {name}")
        assert parser_fingerprint() != first
    finally:
        parser_fingerprint.cache_clear()
