"""What the commands on documents share: which store, whose index, which model, and where a path's objects are.

A bucket is named here as its events name it, so that what a listing sees and what the bucket tells are one object: S3's
by their bare names, all others by the URL they are opened with. `--bucket NAME=URL` says where a name is to be found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from penstock.documents.embedding import EMBEDDED_MODEL
from penstock.errors import InvalidInput, NotFound
from penstock.objects.url import StoreUrl, parse_url
from penstock.pipelines.registry import VECTOR_PATH

__all__ = [
    "STORE_DEFAULT",
    "VECTOR_PATH",
    "Place",
    "allow_option",
    "are_exhaustive",
    "azure_option",
    "bucket_option",
    "chunking_options",
    "collection_options",
    "json_option",
    "place_of",
    "url_of",
    "with_account",
]

STORE_DEFAULT: Final = "penstock-data"
# What begins like a URL is meant as one: `s3:/bucket`, `file:folder`, `https:/…`.
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:/|(memory|file|s3|az|gs|https?):)", re.IGNORECASE)
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket, and the one key or the prefix in it that is meant; a prefix has no slash at its end."""

    bucket: str
    key: str | None = None
    prefix: str = ""

    @property
    def url(self) -> str:
        """What a job may read that is given this place; of one under another name, `--bucket` says where it is."""
        bucket = parse_url(self.bucket if "://" in self.bucket else f"s3://{self.bucket}")
        if bucket.scheme == "file":
            return str(StoreUrl("file", f"{bucket.place}/{self.key}" if self.key else bucket.place))
        return str(StoreUrl(bucket.scheme, bucket.place, self.key or self.prefix))


def collection_options(command: Command) -> Command:
    """`--store`, `--index`, `--tenant` and `--model`."""
    for option in (
        click.option(
            "--model",
            default=None,
            help=f"The embedding model.  [default: the index's own; {EMBEDDED_MODEL} for a new one]",
        ),
        click.option("--tenant", default="default", show_default=True, help="Whose documents."),
        click.option("--index", "index_name", default="default", show_default=True, help="The index's name."),
        click.option("--store", default=STORE_DEFAULT, show_default=True, help="A directory, or a store's URL."),
    ):
        command = option(command)
    return command


def chunking_options(command: Command) -> Command:
    """`--chunk-tokens`, `--max-tokens` and `--overlap-tokens`."""
    for option in (
        click.option("--overlap-tokens", type=click.IntRange(0), default=None, help="Tokens it shares with the last."),
        click.option("--max-tokens", type=click.IntRange(1), default=None, help="Tokens a chunk never passes."),
        click.option("--chunk-tokens", type=click.IntRange(1), default=None, help="Tokens a chunk is meant to have."),
    ):
        command = option(command)
    return command


def bucket_option(command: Command) -> Command:
    """`--bucket NAME=URL`, also from the environment, parted by blanks."""
    return click.option(
        "--bucket",
        "buckets",
        multiple=True,
        metavar="NAME=URL",
        envvar="PENSTOCK_BUCKETS",
        callback=_buckets,
        help="Where a bucket is that events name and that is not S3's. Repeatable.",
    )(command)


def allow_option(command: Command) -> Command:
    """`--allow PATH_OR_URL`, also from the environment, parted by blanks."""
    return click.option(
        "--allow",
        "allowed",
        multiple=True,
        metavar="PATH_OR_URL",
        envvar="PENSTOCK_ALLOW",
        callback=lambda _context, _option, given: tuple(map(_allowed, given)),
        help="Folder or bucket that events may name as well; with a bucket, no others. Repeatable.",
    )(command)


json_option: Final = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


def url_of(store: str) -> str:
    """A store's URL; a plain path is a directory here. A mistyped URL is refused: no folder of its name is made."""
    if "://" in store or _SCHEME.match(store):
        return str(parse_url(store))
    if not store.strip():
        raise InvalidInput("an empty path cannot be a store", "it names nothing", "write a folder, or a store's URL")
    return _folder_url(Path(store).absolute())


def azure_option(command: Command) -> Command:
    """`--azure-account`, from where Azure's own tools have it."""
    return click.option(
        "--azure-account",
        default=None,
        metavar="NAME",
        envvar="AZURE_STORAGE_ACCOUNT_NAME",
        help="Storage account of az://container; az://account.container names its own.",
    )(command)


def with_account(url: str, account: str | None) -> str:
    """A container by the name that its events have, which tells the account too."""
    place = parse_url(url)
    if place.scheme != "az" or account is None or "." in place.place:
        return url
    return str(StoreUrl("az", f"{account}.{place.place}", place.prefix))


def place_of(given: str, buckets: Mapping[str, str] | None = None, account: str | None = None) -> Place:
    """The bucket and the key or prefix of a path or a URL that a person named; `account` is that of Azure."""
    if not given.strip():
        # An empty path would mean this folder: more likely a variable was not set.
        raise InvalidInput("an empty path cannot be indexed", "it names nothing", "write . for this folder")
    if "://" in given and not given.startswith("file://"):
        return _named(_cloud(given, account), buckets or {}, account)
    path = Path(parse_url(given).place if "://" in given else given).resolve()
    if not path.exists():
        raise NotFound(f"there is no {given}", f"{path} does not exist", "name a file, a folder or a store's URL")
    found = Place(_folder_url(path)) if path.is_dir() else Place(_folder_url(path.parent), path.name)
    return _named(found, buckets or {}, account)


def are_exhaustive(allowed: Iterable[str]) -> bool:
    """Whether a list of what is allowed names a bucket of a service: then there are no others."""
    return any(parse_url(url).scheme != "file" for url in allowed)


def _allowed(given: str) -> str:
    """With links followed, as places are."""
    url = parse_url(url_of(given))
    return _folder_url(Path(url.place).resolve()) if url.scheme == "file" else str(url)


def _folder_url(path: Path) -> str:
    return str(StoreUrl("file", str(path)))


def _cloud(given: str, account: str | None) -> Place:
    url = parse_url(with_account(given, account))
    return Place(url.place if url.scheme == "s3" else f"{url.scheme}://{url.place}", prefix=url.prefix)


def _named(place: Place, buckets: Mapping[str, str], account: str | None) -> Place:
    """Under the name that events have for the very same bucket, if one was given."""
    for name, url in buckets.items():
        known = Place(url) if url.startswith("file://") else _cloud(url, account)
        if known.bucket == place.bucket and not known.prefix:
            return Place(name, place.key, place.prefix)
    return place


def _buckets(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in given:
        name, equals, where = each.partition("=")
        if not (name and equals and where):
            raise click.BadParameter(f"{each!r} is not NAME=URL")
        found[name] = str(parse_url(url_of(where)))
    return found
