"""What the commands on documents share: which store, whose index, which model, and where a path's objects are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from penstock.documents.embedding import EMBEDDED_MODEL
from penstock.errors import NotFound
from penstock.pipelines.registry import VECTOR_PATH

__all__ = ["STORE_DEFAULT", "VECTOR_PATH", "Place", "collection_options", "place_of", "url_of"]

STORE_DEFAULT: Final = "penstock-data"
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket as a URL, and the one key in it that is meant, or None for all of it."""

    bucket: str
    key: str | None = None


def collection_options(command: Command) -> Command:
    """`--store`, `--index`, `--tenant` and `--model`."""
    for option in (
        click.option("--model", default=EMBEDDED_MODEL, show_default=True, help="The embedding model."),
        click.option("--tenant", default="default", show_default=True, help="Whose documents."),
        click.option("--index", "index_name", default="default", show_default=True, help="The index's name."),
        click.option("--store", default=STORE_DEFAULT, show_default=True, help="A directory, or a store's URL."),
    ):
        command = option(command)
    return command


def url_of(store: str) -> str:
    """A store's URL; a plain path is a directory here."""
    return store if "://" in store else f"file://{Path(store).absolute()}"


def place_of(given: str) -> Place:
    """The bucket and the key of a path or a URL that a person named."""
    if "://" in given and not given.startswith("file://"):
        return Place(given)
    path = Path(given.removeprefix("file://")).resolve()
    if not path.exists():
        raise NotFound(f"there is no {given}", f"{path} does not exist", "name a file, a folder or a store's URL")
    return Place(f"file://{path}") if path.is_dir() else Place(f"file://{path.parent}", path.name)
