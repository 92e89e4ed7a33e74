"""A cloud store's answer, read from the client's error.

The client gives its errors as text alone: a line for people, then the error's tree as Rust prints it. The line names
keys as they are, so nothing in it can be trusted. In the tree every text is a quoted literal and every address stands
on a line of its own; with both taken out, what is left are the client's own words, and those decide:

```
NotFound {
    path: "a/StartTooLarge.txt",                         a literal, whatever it says
    source: RetryError(RetryErrorImpl {
        uri: Some(
            http://127.0.0.1:8333/bucket/a/StartTooLarge.txt,   an address
        ),
        inner: Status {
            status: 404,
            body: Some("<Error><Code>NoSuchKey</Code>..."),     the service's answer
```
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from obstore import exceptions

__all__ = ["CloudAnswer"]

_TREE: Final = "\n\nDebug source:\n"
_LITERAL: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
# Some services' addresses carry a signature, and the client hides them; where it tried to connect it still tells.
_PEER: Final = re.compile(r"\bConnectError\(\s*@\d+@,\s*([\d.]+:\d+),")
_URI: Final = re.compile(r"^\s*(https?://\S*?),?$", re.MULTILINE)
# `@7@` stands for the seventh literal.
_STATUS: Final = re.compile(r"\bStatus \{\s*status: (\d{3}),(?:\s*body: Some\(\s*@(\d+)@)?")
# The client takes a success for an error when certain words occur anywhere in it, names of objects included.
_RESPONSE: Final = re.compile(r"\bResponse \{\s*status: 200,\s*body: @(\d+)@")
_CARRIED_OUT: Final = re.compile(
    r"(?:<\?xml[^>]*>\s*)?<(?:DeleteResult|CompleteMultipartUploadResult)\b(?!.*<Error>)", re.DOTALL
)
# One object of a bulk delete; Azure gives the status as the code, and its reason in words alone.
_DELETE: Final = re.compile(r"\bDeleteFailed \{\s*path: @\d+@,\s*code: @(\d+)@,\s*reason: @(\d+)@")
_NO_CONTAINER: Final = "The specified container does not exist."
_KIND: Final = re.compile(r"\bHttpError \{\s*kind: (\w+)")
_CODE: Final = re.compile(r"\bcode: @(\d+)@")
# What the operating system or the resolver said, deep in the tree.
_CAUSE: Final = re.compile(r"\b(?:message|error): @(\d+)@")
_WORD: Final = re.compile(r"\b(StartTooLarge|BadScheme|BareRedirect|InvalidPath)\b")
# The first one in the service's document is its own; a key it quotes comes later.
_BODY_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_BODY_MESSAGE: Final = re.compile(r"<Message>([^<]*)")
_TEXT_CHARS_MAX: Final = 300

_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound")
# Where machines ask for their own credentials: link-local addresses that no store has, and Azure Arc's agent.
_IDENTITY_HOSTS: Final = ("169.254.169.254", "169.254.170.2", "metadata.google.internal", "localhost:40342")


@dataclass(frozen=True, slots=True)
class CloudAnswer:
    """An error of the client, read."""

    status: int | None
    # The service's own word, such as `NoSuchBucket`.
    code: str = ""
    # How the connection failed, when there was no status: `Connect`, `Timeout`, `Interrupted` ...
    kind: str = ""
    # The client's own word for what it could not do: `StartTooLarge`, `BadScheme`, `BareRedirect` or `InvalidPath`.
    fault: str = ""
    # For people.
    text: str = ""
    # The service did what it was asked to, and the client misread its answer.
    is_carried_out: bool = False
    # Where the request went, an endpoint from the environment included; with the port, if it has one.
    authority: str = ""

    @classmethod
    def of(cls, error: Exception) -> CloudAnswer:
        display, _, tree = str(error).rpartition(_TREE)
        literals: list[str] = []

        def numbered(literal: re.Match[str]) -> str:
            literals.append(_unescaped(literal[1]))
            return f"@{len(literals) - 1}@"

        words = _LITERAL.sub(numbered, tree)
        addresses = _URI.findall(words)
        words = _URI.sub("", words)
        status = _STATUS.search(words)
        body = literals[int(status[2])] if status and status[2] else _quoted(_RESPONSE, words, literals)
        return cls(
            int(status[1]) if status else _status_of(error),
            _first(_BODY_CODE, body) or _delete_code(words, literals) or _quoted(_CODE, words, literals),
            _first(_KIND, words),
            _first(_WORD, words),
            _text(display or str(error), body, _quoted(_CAUSE, words, literals)),
            bool(_CARRIED_OUT.match(_quoted(_RESPONSE, words, literals))),
            _authority(addresses) or _first(_PEER, words).removesuffix(":80"),
        )

    @property
    def is_past_end(self) -> bool:
        """A range that starts at or past the end of the object."""
        return self.status == 416 or self.fault == "StartTooLarge"

    @property
    def is_conflict(self) -> bool:
        """A condition did not hold. To a condition on a version, an object that is gone is one more change."""
        return self.status in (304, 404, 409, 412) and not self.is_missing_bucket

    @property
    def is_missing_bucket(self) -> bool:
        return self.code in _NO_BUCKET

    @property
    def is_without_credentials(self) -> bool:
        """The machine was asked who it is, and did not know."""
        return self.authority in _IDENTITY_HOSTS

    @property
    def host(self) -> str:
        return _split(f"//{self.authority}").hostname or ""

    @property
    def is_refused_unread(self) -> bool:
        """The request was never sent, or was turned away before it was looked at."""
        return self.kind == "Connect" or self.status == 429 or self.code == "SlowDown"


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1] if found else ""


def _quoted(pattern: re.Pattern[str], words: str, literals: list[str]) -> str:
    place = _first(pattern, words)
    return literals[int(place)] if place else ""


def _delete_code(words: str, literals: list[str]) -> str:
    found = _DELETE.search(words)
    return "ContainerNotFound" if found and literals[int(found[2])] == _NO_CONTAINER else ""


def _unescaped(literal: str) -> str:
    return literal.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")


def _text(display: str, body: str, cause: str) -> str:
    message = _first(_BODY_MESSAGE, body)
    text = message.split("\n")[0] if message else display.rsplit(" - ", 1)[-1]
    return (f"{text}: {cause}" if cause else text).strip()[:_TEXT_CHARS_MAX]


def _authority(addresses: list[str]) -> str:
    return _split(addresses[-1]).netloc.rpartition("@")[2].removesuffix(":80") if addresses else ""


def _split(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _status_of(error: Exception) -> int | None:
    """The status behind a typed error whose text does not give it."""
    if isinstance(error, FileNotFoundError):
        return 404
    if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
        return 403
    if isinstance(error, exceptions.AlreadyExistsError | exceptions.PreconditionError | exceptions.NotModifiedError):
        return 412
    if isinstance(error, exceptions.NotSupportedError):
        return 501
    return None
