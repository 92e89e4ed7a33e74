"""Who embeds, as a person says it: an endpoint, its key, what its model takes and costs, and how often it may be asked.

A model that Penstock has no profile of is described by options or by a file of JSON with the fields of `ModelProfile`;
nothing is guessed that could cut a text off. An index remembers what its model was described with.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import click
import msgspec

from penstock.cli.secrets import read_secret, warn_of_secret
from penstock.documents.embedding import PROFILES, ModelProfile, RateLimit
from penstock.errors import InvalidInput

__all__ = ["Description", "Provider", "old_key_options", "provider_options", "rate_options", "read_key"]

Count = Annotated[int, msgspec.Meta(ge=1)]
Price = Annotated[float, msgspec.Meta(ge=0.0)]
Share = Annotated[float, msgspec.Meta(gt=0.0, le=1.0)]

# What servers of open models take by default (Text Embeddings Inference): small enough for all the others.
_REQUEST_TOKENS: Final = 16_384
_REQUEST_ITEMS: Final = 32
# A profile is a few lines, and so are the keys of a store's endpoints.
_FILE_BYTES_MAX: Final = 1 << 16
KEYS_VARIABLE: Final = "PENSTOCK_EMBEDDING_KEYS"
_KEYS_FORM: Final = 'it is JSON like {"https://host/v1": "key"}'
_D = TypeVar("_D")


class Description(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is said of a model; None leaves it as it is known."""

    dimensions: Count | None = None
    tokens_per_input: Count | None = None
    tokens_per_request: Count | None = None
    items_per_request: Count | None = None
    bytes_per_request: Count | None = None
    usd_per_million_tokens: Price | None = None
    headroom: Share | None = None
    vector_weight: Share | None = None

    def __bool__(self) -> bool:
        return any(value is not None for value in self._said().values())

    def profile(self, model: str, known: ModelProfile | None = None) -> ModelProfile:
        """The profile of a model: what is said, over what is known. `InvalidInput` when that is too little."""
        known = known or PROFILES.get(model)
        said = {name: value for name, value in self._said().items() if value is not None}
        if known is not None:
            return msgspec.structs.replace(known, **said)
        missing = [name for name in ("dimensions", "tokens_per_input") if name not in said]
        if missing:
            raise InvalidInput(
                f"model {model} is not described",
                f"nobody has said its {' and '.join(missing)}",
                "give --dimensions and --input-tokens, or a --profile FILE",
            )
        least = {"tokens_per_request": max(_REQUEST_TOKENS, said["tokens_per_input"])}
        return ModelProfile(name=model, **{**least, "items_per_request": _REQUEST_ITEMS, **said})

    def over(self, other: Description) -> Description:
        """This where it says something, else the other."""
        said = {name: value for name, value in self._said().items() if value is not None}
        return msgspec.structs.replace(other, **said)

    def _said(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


@dataclass(frozen=True, slots=True)
class Provider:
    """All of it; what is not said is None or empty."""

    url: str | None = None
    key: str | None = field(default=None, repr=False)
    description: Description = field(default_factory=Description)
    rate: RateLimit = field(default_factory=RateLimit)
    # By address, for the endpoints that the indexes of a store remember.
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)


def provider_options(command: Callable[..., Any]) -> Any:
    """`--embedding-url`, `--embedding-key`, and what the model takes and costs; the command gets one `provider`."""

    @wraps(command)
    def gathered(
        *arguments: Any,
        embedding_url: str | None,
        embedding_key: str | None,
        embedding_key_file: Path | None,
        embedding_keys: Path | None,
        profile: Path | None,
        dimensions: int | None,
        input_tokens: int | None,
        price: float | None,
        **given: Any,
    ) -> Any:
        rate = RateLimit(given.pop("requests_per_minute", None), given.pop("tokens_per_minute", None))
        said = Description(dimensions=dimensions, tokens_per_input=input_tokens, usd_per_million_tokens=price)
        described = said.over(_read(profile)) if profile is not None else said
        keys = {**_keys_in_environment(), **(_read_keys(embedding_keys) if embedding_keys else {})}
        own = read_key(embedding_key, embedding_key_file)
        for key in (own or "", *keys.values()):
            _check_key(key)
        provider = Provider(embedding_url, own, described, rate, keys)
        return command(*arguments, provider=provider, **given)

    return _with(
        gathered,
        click.option(
            "--profile",
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            default=None,
            help="All that is to be said of the model, as JSON.",
        ),
        click.option("--price", type=click.FloatRange(0), default=None, help="Dollars a million of its tokens."),
        click.option("--input-tokens", type=click.IntRange(1), default=None, help="Tokens it takes in one text."),
        click.option(
            "--dimensions", type=click.IntRange(1), default=None, help="Numbers in a vector of a model not known here."
        ),
        click.option(
            "--embedding-keys",
            metavar="FILE",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            default=None,
            envvar="PENSTOCK_EMBEDDING_KEYS_FILE",
            help="Keys of several endpoints, as JSON: an object of URL and key.",
        ),
        *_key_options("--embedding-key", "PENSTOCK_EMBEDDING_KEY", "Its key"),
        click.option(
            "--embedding-url", default=None, metavar="URL", help="An OpenAI-compatible endpoint for the model."
        ),
    )


def old_key_options(command: Callable[..., Any]) -> Any:
    """`--old-embedding-key` and `--old-embedding-key-file`, for `read_key`."""
    what = "Key of the present model's endpoint, for what changes meanwhile"
    return _with(command, *_key_options("--old-embedding-key", "PENSTOCK_OLD_EMBEDDING_KEY", what))


def read_key(key: str | None, file: Path | None) -> str | None:
    """The one that was given; `InvalidInput` when two were."""
    if key and file:
        raise InvalidInput("an embedding key is given twice", "once as it is and once in a file", "give the file alone")
    return read_secret(file) if file else key


def rate_options(command: Callable[..., Any]) -> Any:
    """`--requests-per-minute` and `--tokens-per-minute`; above `provider_options`, which takes them in."""
    above = click.FloatRange(0, min_open=True)
    return _with(
        command,
        click.option("--tokens-per-minute", type=above, default=None, help="So many tokens are sent at most."),
        click.option("--requests-per-minute", type=above, default=None, help="So often is the endpoint asked at most."),
    )


def _key_options(option: str, variable: str, what: str) -> list[Callable[[Any], Any]]:
    """On the command line with a warning, in the environment, or in a file that either of them names."""
    return [
        click.option(
            f"{option}-file",
            metavar="FILE",
            type=click.Path(path_type=Path),
            default=None,
            envvar=f"{variable}_FILE",
            help=f"{what}, in a file.",
        ),
        click.option(option, default=None, envvar=variable, callback=warn_of_secret, help=f"{what}."),
    ]


def _with(command: Any, *options: Callable[[Any], Any]) -> Any:
    """The last option is shown first."""
    for option in options:
        command = option(command)
    return command


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
            "it holds a character that no header can carry",
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
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidInput(f"{what} cannot be used", str(error), form) from error
