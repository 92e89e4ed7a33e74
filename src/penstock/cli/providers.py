"""Who embeds, as a person says it: an endpoint, its key, what its model takes and costs, and how often it may be asked.

A model that Penstock has no profile of is described by options or by a file of JSON with the fields of `ModelProfile`;
nothing is guessed that could cut a text off. An index remembers what its model was described with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final

import click
import msgspec

from penstock.documents.embedding import PROFILES, ModelProfile, RateLimit
from penstock.errors import InvalidInput

__all__ = ["Description", "Provider", "provider_options", "rate_options"]

Count = Annotated[int, msgspec.Meta(ge=1)]
Price = Annotated[float, msgspec.Meta(ge=0.0)]
Share = Annotated[float, msgspec.Meta(gt=0.0, le=1.0)]

# What servers of open models take by default (Text Embeddings Inference): small enough for all the others.
_REQUEST_TOKENS: Final = 16_384
_REQUEST_ITEMS: Final = 32
# A profile is a few lines.
_FILE_BYTES_MAX: Final = 1 << 16


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


def provider_options(command: Callable[..., Any]) -> Any:
    """`--embedding-url`, `--embedding-key`, and what the model takes and costs; the command gets one `provider`."""

    @wraps(command)
    def gathered(
        *arguments: Any,
        embedding_url: str | None,
        embedding_key: str | None,
        profile: Path | None,
        dimensions: int | None,
        input_tokens: int | None,
        price: float | None,
        **given: Any,
    ) -> Any:
        rate = RateLimit(given.pop("requests_per_minute", None), given.pop("tokens_per_minute", None))
        said = Description(dimensions=dimensions, tokens_per_input=input_tokens, usd_per_million_tokens=price)
        described = said.over(_read(profile)) if profile is not None else said
        return command(*arguments, provider=Provider(embedding_url, embedding_key, described, rate), **given)

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
        click.option("--embedding-key", default=None, envvar="PENSTOCK_EMBEDDING_KEY", help="Its key."),
        click.option(
            "--embedding-url", default=None, metavar="URL", help="An OpenAI-compatible endpoint for the model."
        ),
    )


def rate_options(command: Callable[..., Any]) -> Any:
    """`--requests-per-minute` and `--tokens-per-minute`; above `provider_options`, which takes them in."""
    above = click.FloatRange(0, min_open=True)
    return _with(
        command,
        click.option("--tokens-per-minute", type=above, default=None, help="So many tokens are sent at most."),
        click.option("--requests-per-minute", type=above, default=None, help="So often is the endpoint asked at most."),
    )


def _with(command: Any, *options: Callable[[Any], Any]) -> Any:
    """The last option is shown first."""
    for option in options:
        command = option(command)
    return command


def _read(path: Path) -> Description:
    with path.open("rb") as opened:
        data = opened.read(_FILE_BYTES_MAX + 1)
    if len(data) > _FILE_BYTES_MAX:
        raise InvalidInput(f"the profile {path} cannot be used", f"it has more than {_FILE_BYTES_MAX} bytes")
    try:
        return msgspec.json.decode(data, type=Description)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        fields = ", ".join(Description.__struct_fields__)
        raise InvalidInput(f"the profile {path} cannot be used", str(error), f"it is JSON with {fields}") from error
