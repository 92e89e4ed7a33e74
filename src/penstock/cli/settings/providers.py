"""Who embeds, read from options, files and the environment: keys of endpoints, and the descriptions of their models.

A model that Penstock has no profile of is described by options or by a file of JSON with the fields of `Description`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from penstock.cli.settings.secrets import read_secret
from penstock.documents.embedding import RateLimit
from penstock.errors import InvalidInput
from penstock.indexing import Description
from penstock.undecodable import UNDECODABLE

__all__ = ["ProviderKeys", "describe", "rate_of", "read_key"]

# A profile is a few lines, and so are the keys of a store's endpoints.
_FILE_BYTES_MAX: Final = 1 << 16
KEYS_VARIABLE: Final = "PENSTOCK_EMBEDDING_KEYS"
_KEYS_FORM: Final = 'it is JSON like {"https://host/v1": "key"}'
_D = TypeVar("_D")


class ProviderKeys(NamedTuple):
    """The key of the endpoint that a command is about, and those of other endpoints by their URLs."""

    own: str | None
    by_url: Mapping[str, str]

    @classmethod
    def read(cls, key: str | None, key_file: Path | None, keys_file: Path | None) -> ProviderKeys:
        """From the options and the environment; `InvalidInput` for what no request could carry."""
        by_url = {**_keys_in_environment(), **(_read_keys(keys_file) if keys_file else {})}
        own = read_key(key, key_file)
        for each in (own or "", *by_url.values()):
            _check_key(each)
        return cls(own, by_url)


def describe(
    profile: Path | None, dimensions: int | None, input_tokens: int | None, price: float | None
) -> Description:
    """What options say of a model, over what a profile's file says."""
    said = Description(dimensions=dimensions, tokens_per_input=input_tokens, usd_per_million_tokens=price)
    return said.over(_read(profile)) if profile is not None else said


def rate_of(requests_per_minute: float | None, tokens_per_minute: float | None) -> RateLimit:
    return RateLimit(requests_per_minute, tokens_per_minute)


def read_key(key: str | None, file: Path | None) -> str | None:
    """The one that was given; `InvalidInput` when two were."""
    if key and file:
        raise InvalidInput("an embedding key is given twice", "once directly and once in a file", "give only the file")
    return read_secret(file) if file else key


def _read(path: Path) -> Description:
    fields = ", ".join(Description.__struct_fields__)
    return _decoded(_bounded(path), Description, f"the profile {path}", f"it is JSON with {fields}")


def _read_keys(path: Path) -> dict[str, str]:
    return _decoded(_bounded(path), dict[str, str], f"the keys in {path}", _KEYS_FORM)


def _keys_in_environment() -> dict[str, str]:
    text = os.environ.get(KEYS_VARIABLE, "")
    return _decoded(text.encode("utf-8", "replace"), dict[str, str], KEYS_VARIABLE, _KEYS_FORM) if text else {}


def _check_key(key: str) -> None:
    if not key.isascii() or not key.isprintable() or key != key.strip():
        raise InvalidInput(
            "an embedding key cannot be used",
            "it has a character that HTTP headers do not allow",
            "check how it was copied",
        )


def _bounded(path: Path) -> bytes:
    with path.open("rb") as opened:
        data = opened.read(_FILE_BYTES_MAX + 1)
    if len(data) > _FILE_BYTES_MAX:
        raise InvalidInput(f"{path} cannot be used", f"it has more than {_FILE_BYTES_MAX} bytes")
    return data


def _decoded(data: bytes, kind: type[_D], what: str, form: str) -> _D:
    """What a file or a variable says. An error names the place in it, and quotes nothing: there may be keys."""
    try:
        return msgspec.json.decode(data, type=kind)
    except UNDECODABLE as error:
        raise InvalidInput(f"{what} cannot be used", str(error), form) from error
