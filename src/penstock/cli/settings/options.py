"""The options that several commands share. Only click is imported: help and refusals do not wait for a room.

Whatever an option's value needs of a room is imported when the value is given. The defaults that rooms decide are
written again here, because their own modules take a tenth of a second; a test holds them to the rooms'.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from penstock.cli.settings.numbers import FiniteRange
from penstock.cli.settings.secrets import warn_of_secret

__all__ = [
    "BUILT_IN_MODEL",
    "LAKE_PREFIX",
    "SETTINGS_FILE",
    "STORE_DEFAULT",
    "VECTOR_PATH",
    "allow_option",
    "azure_option",
    "bucket_option",
    "budget_options",
    "chunking_options",
    "collection_options",
    "engine_option",
    "json_option",
    "master_option",
    "old_key_options",
    "provider_options",
    "rate_options",
    "settings_option",
]

SETTINGS_FILE: Final = "penstock.toml"
STORE_DEFAULT: Final = "penstock-data"
# Where the telemetry job keeps its catalog.
LAKE_PREFIX: Final = "telemetry/lake"
BUILT_IN_MODEL: Final = "penstock-static-256-v2"
VECTOR_PATH: Final = "vectors"

json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
master_option: Final = click.option("--master", default="local[*]", show_default=True, help="Spark master.")
engine_option: Final = click.option(
    "--engine",
    type=click.Choice(["spark", "local"]),
    default="spark",
    show_default=True,
    help="What reads and embeds documents: Spark, or this process alone.",
)


def collection_options(command: Callable[..., Any]) -> Any:
    """`--store`, `--index`, `--tenant` and `--model`."""
    return _with(
        command,
        click.option(
            "--model",
            default=None,
            help=f"Embedding model.  [default: the index's own; {BUILT_IN_MODEL} for a new index]",
        ),
        click.option("--tenant", default="default", show_default=True, help="Tenant that owns the index."),
        click.option("--index", "index_name", default="default", show_default=True, help="Name of the index."),
        click.option("--store", default=STORE_DEFAULT, show_default=True, help="Directory or URL of the store."),
    )


def chunking_options(command: Callable[..., Any]) -> Any:
    """`--chunk-tokens`, `--max-tokens` and `--overlap-tokens`."""
    return _with(
        command,
        click.option(
            "--overlap-tokens", type=click.IntRange(0), default=None, help="Overlap of neighbouring chunks, in tokens."
        ),
        click.option("--max-tokens", type=click.IntRange(1), default=None, help="Maximum chunk size, in tokens."),
        click.option("--chunk-tokens", type=click.IntRange(1), default=None, help="Target chunk size, in tokens."),
    )


def bucket_option(command: Callable[..., Any]) -> Any:
    """`--bucket NAME=URL`, also from the environment, separated by blanks."""
    return click.option(
        "--bucket",
        "buckets",
        multiple=True,
        metavar="NAME=URL",
        envvar="PENSTOCK_BUCKETS",
        callback=_buckets,
        help="URL of a bucket that events call NAME, if it is not on S3. Repeatable.",
    )(command)


def allow_option(command: Callable[..., Any]) -> Any:
    """`--allow PATH_OR_URL`, also from the environment, separated by blanks."""
    return click.option(
        "--allow",
        "allowed",
        multiple=True,
        metavar="PATH_OR_URL",
        envvar="PENSTOCK_ALLOW",
        callback=_allowed,
        help="Additional folder or bucket that events may name; with a bucket given, no others are allowed. Repeatable.",
    )(command)


def azure_option(command: Callable[..., Any]) -> Any:
    """`--azure-account`, from the variable that Azure's own tools read."""
    return click.option(
        "--azure-account",
        default=None,
        metavar="NAME",
        envvar="AZURE_STORAGE_ACCOUNT_NAME",
        help="Storage account of az://container; az://account.container names its own.",
    )(command)


def settings_option(command: Callable[..., Any]) -> Any:
    """`--config FILE`; the command gets `settings`."""

    @wraps(command)
    def gathered(*arguments: Any, config: Path | None, **given: Any) -> Any:
        from penstock.cli.settings.configuration import load_settings

        return command(*arguments, settings=load_settings(config, os.environ), **given)

    return click.option(
        "--config",
        metavar="FILE",
        type=click.Path(path_type=Path),
        default=None,
        envvar="PENSTOCK_CONFIG",
        help=f"Settings file, as TOML.  [default: {SETTINGS_FILE}, if it exists]",
    )(gathered)


def provider_options(command: Callable[..., Any]) -> Any:
    """`--embedding-url`, `--embedding-key`, and the model's limits and price; the command gets one `provider`."""

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
        from penstock.cli.settings.providers import ProviderKeys, describe, rate_of
        from penstock.indexing import Provider

        rate = rate_of(given.pop("requests_per_minute", None), given.pop("tokens_per_minute", None))
        described = describe(profile, dimensions, input_tokens, price)
        keys = ProviderKeys.read(embedding_key, embedding_key_file, embedding_keys)
        provider = Provider(embedding_url, keys.own, described, rate, keys.by_url)
        return command(*arguments, provider=provider, **given)

    return _with(
        gathered,
        click.option("--profile", metavar="FILE", type=_FILE, default=None, help="Model profile, as JSON."),
        click.option("--price", type=FiniteRange(0), default=None, help="Price, in US dollars per million tokens."),
        click.option("--input-tokens", type=click.IntRange(1), default=None, help="Maximum tokens in one input text."),
        click.option(
            "--dimensions",
            type=click.IntRange(1),
            default=None,
            help="Embedding dimensions, for a model without a built-in profile.",
        ),
        click.option(
            "--embedding-keys",
            metavar="FILE",
            type=_FILE,
            default=None,
            envvar="PENSTOCK_EMBEDDING_KEYS_FILE",
            help="API keys of several endpoints, as a JSON object of URL and key.",
        ),
        *_key_options("--embedding-key", "PENSTOCK_EMBEDDING_KEY", "API key of the endpoint"),
        click.option("--embedding-url", default=None, metavar="URL", help="OpenAI-compatible endpoint of the model."),
    )


def old_key_options(command: Callable[..., Any]) -> Any:
    """`--old-embedding-key` and `--old-embedding-key-file`, for `read_key`."""
    what = "API key of the current model's endpoint, for documents that change during the rebuild"
    return _with(command, *_key_options("--old-embedding-key", "PENSTOCK_OLD_EMBEDDING_KEY", what))


def budget_options(command: Callable[..., Any]) -> Any:
    """`--max-dollars` and `--max-total-tokens`; the command gets one `budget`."""

    @wraps(command)
    def gathered(*arguments: Any, max_dollars: float | None, max_total_tokens: int | None, **given: Any) -> Any:
        from penstock.indexing import EmbeddingBudget

        return command(*arguments, budget=EmbeddingBudget(max_dollars, max_total_tokens), **given)

    return _with(
        gathered,
        click.option(
            "--max-total-tokens",
            type=click.IntRange(1),
            default=None,
            help="Maximum tokens to embed in this run; the rest waits for the next run.",
        ),
        click.option(
            "--max-dollars",
            type=FiniteRange(0, min_open=True),
            default=None,
            help="Maximum price of this run's embeddings, in US dollars; the rest waits for the next run.",
        ),
    )


def rate_options(command: Callable[..., Any]) -> Any:
    """`--requests-per-minute` and `--tokens-per-minute`; above `provider_options`, which takes them in."""
    above = FiniteRange(0, min_open=True)
    return _with(
        command,
        click.option(
            "--tokens-per-minute", type=above, default=None, help="Maximum tokens per minute sent to the endpoint."
        ),
        click.option(
            "--requests-per-minute", type=above, default=None, help="Maximum requests per minute to the endpoint."
        ),
    )


_FILE: Final[click.Path] = click.Path(exists=True, dir_okay=False, path_type=Path)


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


def _buckets(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    if not given:
        return {}
    from penstock.indexing import url_of

    found = {}
    for each in given:
        name, equals, where = each.partition("=")
        if not (name and equals and where):
            raise click.BadParameter(f"{each!r} is not NAME=URL")
        found[name] = url_of(where)
    return found


def _allowed(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    if not given:
        return ()
    from penstock.indexing import allowed_url

    return tuple(map(allowed_url, given))
