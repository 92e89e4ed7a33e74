"""Sessions of the dashboard: a signed cookie that stands for a token, and a second secret against forged requests.

The cookie holds the token's public id and its end, signed with a key that lives as long as the process. The token
itself is never kept. What the token may do is looked up at every request, so that revoking it ends the session.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from hashlib import blake2b
from http.cookies import CookieError, SimpleCookie
from typing import Final

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.gateway.access.tokens import Principal, TokenBook
from penstock.ids import SYSTEM_ENTROPY, Entropy

__all__ = ["COOKIE", "Sessions"]

COOKIE: Final = "penstock_session"
_HOURS: Final = 12
_KEY_BYTES: Final = 32


class Sessions:
    """Makes and reads cookies."""

    def __init__(self, *, secure: bool, clock: Clock = SYSTEM_CLOCK, entropy: Entropy = SYSTEM_ENTROPY) -> None:
        self._key, self._secure, self._clock = entropy.token(_KEY_BYTES), secure, clock

    def begin(self, principal: Principal) -> str:
        """The `Set-Cookie` of a session for whoever showed a token."""
        until = self._clock.now_ms() // 1000 + _HOURS * 3600
        value = f"{principal.token_id}.{until}"
        signed = f"{value}.{self._signature('session', value)}"
        secure = "; Secure" if self._secure else ""
        return f"{COOKIE}={signed}; Path=/; Max-Age={_HOURS * 3600}; HttpOnly; SameSite=Strict{secure}"

    def end(self) -> str:
        """The `Set-Cookie` that ends one."""
        return f"{COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"

    def principal(self, cookie_header: str | None, book: TokenBook) -> Principal | None:
        """Whose session a request belongs to, if its token is still good."""
        value = self._value(cookie_header)
        if value is None:
            return None
        token_id, until = value.split(".")
        entry = book.entries.get(token_id)
        now_ms = self._clock.now_ms()
        if entry is None or int(until) * 1000 <= now_ms or (entry.expires_at_ms or now_ms + 1) <= now_ms:
            return None
        return Principal(entry.tenant, frozenset(entry.scopes), entry.id)

    def form_secret(self, cookie_header: str | None) -> str:
        """What a form of this session must carry; empty without one."""
        value = self._value(cookie_header)
        return "" if value is None else self._signature("form", value)

    @property
    def open_form_secret(self) -> str:
        """What a form must carry where nobody logs in."""
        return self._signature("form", "")

    @staticmethod
    def is_same(expected: str, given: str) -> bool:
        """In constant time; an empty secret is nobody's."""
        return bool(expected) and hmac.compare_digest(expected.encode(), given.encode())

    def _value(self, cookie_header: str | None) -> str | None:
        try:
            cookie = SimpleCookie(cookie_header or "").get(COOKIE)
        except CookieError:
            return None
        value, _, signature = (cookie.value if cookie else "").rpartition(".")
        if value.count(".") != 1 or not value.rpartition(".")[2].isdigit():
            return None
        expected = self._signature("session", value)
        return value if hmac.compare_digest(signature.encode(), expected.encode()) else None

    def _signature(self, purpose: str, value: str) -> str:
        digest = blake2b(f"{purpose}:{value}".encode(), key=self._key, digest_size=24).digest()
        return urlsafe_b64encode(digest).decode()
