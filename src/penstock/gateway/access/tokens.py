"""Who may use the gateway: tokens of 256 random bits, each of one tenant and with its scopes.

A token is `pst_<id>_<secret>`. Its public id finds the entry; of the secret only a keyed BLAKE2b digest is kept, and
compared in constant time. A slow hash would protect nothing here, because nobody guesses 256 bits, and would let
strangers load the server. The file holds the key and the digests: whoever reads it cannot make a token of an entry,
but it belongs to its owner alone all the same.
"""

from __future__ import annotations

import hmac
import os
import re
from base64 import b32encode, b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from penstock.disk import explain
from penstock.errors import Conflict, Corrupt, InvalidInput, NotFound, PermissionDenied
from penstock.gateway.access.naming import check_tenant
from penstock.ids import SYSTEM_ENTROPY, Entropy
from penstock.undecodable import UNDECODABLE

__all__ = ["Forbidden", "Principal", "Scope", "TokenBook", "TokenEntry", "Unauthenticated"]

_TOKEN: Final = re.compile(r"pst_([a-z2-7]{16})_([A-Za-z0-9_-]{43})")
_ID_BYTES: Final = 10
_SECRET_BYTES: Final = 32
_KEY_BYTES: Final = 32
_PERSON: Final = b"penstock-token"
_VERSION: Final = 1
_FILE_BYTES_MAX: Final = 16 << 20
_READABLE_BY_OTHERS: Final = 0o077
# Of a file that root owns and mounts for us, as orchestrators do with secrets: our group may read it.
_READABLE_BEYOND_GROUP: Final = 0o037


class Scope(StrEnum):
    """What a token allows; `admin` is for changes that no data path needs."""

    WRITE = "write"
    READ = "read"
    ADMIN = "admin"


class Unauthenticated(PermissionDenied):
    """No token, or none that is known. The answer never tells which."""

    usual_remedy = "send `Authorization: Bearer pst_…` with a token from `penstock token create`"


class Forbidden(PermissionDenied):
    """Whoever asks may not. A store that refuses the gateway's own credentials raises its parent: nobody who asks can
    do anything about that."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who sent a request: a tenant, and what it may do. `token_id` is None on a gateway without tokens."""

    tenant: str
    scopes: frozenset[Scope]
    token_id: str | None = None


class TokenEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The stored part of a token."""

    id: str
    tenant: str
    scopes: tuple[Scope, ...]
    digest: str
    created_at_ms: int
    expires_at_ms: int | None = None
    note: str = ""


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    key: str
    tokens: tuple[TokenEntry, ...] = ()


@dataclass(frozen=True)
class TokenBook:
    """The entries by id, and the key of their digests. Immutable: a change makes a new book."""

    key: bytes = field(repr=False)
    entries: Mapping[str, TokenEntry] = field(default_factory=dict)

    @classmethod
    def new(cls, entropy: Entropy = SYSTEM_ENTROPY) -> TokenBook:
        return cls(entropy.token(_KEY_BYTES))

    def issue(
        self,
        tenant: str,
        scopes: Iterable[Scope],
        now_ms: int,
        *,
        expires_at_ms: int | None = None,
        note: str = "",
        entropy: Entropy = SYSTEM_ENTROPY,
    ) -> tuple[TokenBook, str]:
        """The book with one more token, and the token itself, which can never be shown again."""
        check_tenant(tenant)
        chosen = tuple(sorted(set(scopes)))
        if not chosen:
            raise InvalidInput("a token needs a scope", "it would allow nothing", "give write, read or admin")
        if expires_at_ms is not None and expires_at_ms <= now_ms:
            raise InvalidInput("the token would already be expired", "its expiry is not in the future")
        token_id = b32encode(entropy.token(_ID_BYTES)).decode().lower()
        secret = entropy.token(_SECRET_BYTES)
        entry = TokenEntry(
            id=token_id,
            tenant=tenant,
            scopes=chosen,
            digest=self._digest(secret).hex(),
            created_at_ms=now_ms,
            expires_at_ms=expires_at_ms,
            note=note,
        )
        text = urlsafe_b64encode(secret).decode().rstrip("=")
        return TokenBook(self.key, {**self.entries, token_id: entry}), f"pst_{token_id}_{text}"

    def without(self, token_id: str) -> TokenBook:
        """The book after a token was revoked."""
        if token_id not in self.entries:
            raise NotFound(f"there is no token {token_id!r}", "it was revoked, or never created", "list the tokens")
        return TokenBook(self.key, {name: entry for name, entry in self.entries.items() if name != token_id})

    def authenticate(self, authorization: str | None, now_ms: int) -> Principal:
        """Whose token an `Authorization` header carries, or `Unauthenticated`."""
        scheme, _, credentials = (authorization or "").partition(" ")
        matched = _TOKEN.fullmatch(credentials.strip()) if scheme.lower() == "bearer" else None
        if matched is None:
            raise _refused()
        entry = self.entries.get(matched[1])
        # Without an entry the digest is compared all the same: the answer takes as long.
        expected = bytes.fromhex(entry.digest) if entry else bytes(32)
        secret = urlsafe_b64decode(f"{matched[2]}=")
        same = hmac.compare_digest(self._digest(secret), expected)
        # The last character has two bits to spare: a secret is written in one way only.
        if entry is None or not same or urlsafe_b64encode(secret).decode().rstrip("=") != matched[2]:
            raise _refused()
        if entry.expires_at_ms is not None and entry.expires_at_ms <= now_ms:
            raise _refused()
        return Principal(entry.tenant, frozenset(entry.scopes), entry.id)

    def _digest(self, secret: bytes) -> bytes:
        return blake2b(secret, digest_size=32, key=self.key, person=_PERSON).digest()

    # The file --------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        file = _File(version=_VERSION, key=b64encode(self.key).decode(), tokens=tuple(self.entries.values()))
        return msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n"

    @classmethod
    def decode(cls, data: bytes, where: str = "the token file") -> TokenBook:
        try:
            file = msgspec.json.decode(data, type=_File)
            key = b64decode(file.key, validate=True)
        except (*UNDECODABLE, NotBase64, ValueError) as error:
            raise Corrupt(f"{where} cannot be read", str(error), "restore it, or make new tokens") from error
        if file.version != _VERSION:
            raise InvalidInput(
                f"{where} has version {file.version}", f"this release reads version {_VERSION}", "use a newer release"
            )
        if len(key) != _KEY_BYTES or any(len(entry.digest) != 64 for entry in file.tokens):
            raise Corrupt(f"{where} cannot be read", "a key or digest has the wrong length", "restore it")
        return cls(key, {entry.id: entry for entry in file.tokens})

    @classmethod
    def load(cls, path: Path) -> TokenBook:
        """The book of a file, which must be readable by its owner alone; one of root's also by our group."""
        try:
            with path.open("rb") as opened:
                status = os.fstat(opened.fileno())
                data = opened.read(_FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            remedy = "make one with `penstock token create`"
            raise NotFound(f"there is no token file {path}", "the file does not exist", remedy) from None
        except OSError as error:
            kind = PermissionDenied if isinstance(error, PermissionError) else InvalidInput
            raise kind(f"{path} is not used", f"it cannot be read: {error.strerror}", "name a token file") from None
        if is_readable_by_others(status.st_mode, status.st_uid, os.geteuid()):
            raise PermissionDenied(f"{path} is not used", "others may read it", f"chmod 600 {path}")
        if len(data) > _FILE_BYTES_MAX:
            raise InvalidInput(f"{path} is not used", f"it has more than {_FILE_BYTES_MAX:,} bytes")
        return cls.decode(data, str(path))

    def save(self, path: Path, *, replaces: TokenBook | None) -> None:
        """Write the file so that a crash leaves the old one or the new one; refused if it changed meanwhile."""
        found = path.read_bytes() if path.exists() else None
        if found != (replaces.encode() if replaces else None):
            raise Conflict(f"{path} was changed meanwhile", "somebody else wrote it", "try again")
        try:
            self._write(path)
        except OSError as error:
            raise explain(f"{path} cannot be written", error) from error

    def _write(self, path: Path) -> None:
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(self.encode())
            opened.flush()
            os.fsync(opened.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def is_readable_by_others(mode: int, owner: int, user: int) -> bool:
    """Whether a secret file of `owner` is open to more people than `user` and whoever gave it to them."""
    is_mounted = owner == 0 and user != 0
    return bool(mode & (_READABLE_BEYOND_GROUP if is_mounted else _READABLE_BY_OTHERS))


def _refused() -> Unauthenticated:
    return Unauthenticated("the request is not authenticated", "it carries no valid token")
