"""Options of every command that runs for long: where its settings are, and how it is watched."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from penstock.cli.settings.options import settings_option
from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.cli.settings.configuration import Settings

__all__ = ["LOG_FORMATS", "LOG_LEVELS", "long_running"]

LOG_FORMATS: Final = ("text", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


def long_running(command: Callable[..., Any]) -> Any:
    """`--config`, `--metrics`, `--log-format` and `--log-level`; the command gets `settings` and `watching`."""

    @wraps(command)
    def gathered(
        *arguments: Any,
        settings: Settings,
        metrics: str | None,
        log_format: str | None,
        log_level: str | None,
        **given: Any,
    ) -> Any:
        from penstock.cli.settings.observing import ObservingConfig, Watching

        config = settings.of(ObservingConfig, metrics=metrics, log_format=log_format, log_level=log_level)
        return command(*arguments, settings=settings, watching=Watching(config, os.environ), **given)

    found: Any = settings_option(gathered)
    for option in (
        click.option(
            "--log-level",
            type=click.Choice(LOG_LEVELS),
            default=None,
            help="Minimum severity of log lines on standard error.  [default: info with --log-format, else warning]",
        ),
        click.option(
            "--log-format",
            type=click.Choice(LOG_FORMATS),
            default=None,
            help="Format of log lines: text, or one JSON object each.",
        ),
        click.option(
            "--metrics",
            metavar="[HOST:]PORT",
            default=None,
            callback=_address,
            help="Address to serve Prometheus metrics on.  [default host: 127.0.0.1]",
        ),
    ):
        found = option(found)
    return found


def _address(_context: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    if given is not None:
        from penstock.cli.settings.observing import parse_address

        try:
            parse_address(given)
        except InvalidInput as error:
            raise click.BadParameter(f"{error.what}: {error.why}; {error.remedy}") from None
    return given
