"""Secrets on their way into a command: from a file or the environment, and with a warning from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from penstock.errors import InvalidInput, NotFound, PermissionDenied

__all__ = ["read_secret", "warn_of_secret"]

_SECRET_BYTES_MAX: Final = 64 << 10


def warn_of_secret(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """For `callback=`: say that a secret on the command line can be read by everybody on this machine."""
    if value and parameter.name and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
        option = parameter.opts[0]
        other = f"{option}-file FILE"
        variable = f", or the variable {parameter.envvar}" if isinstance(parameter.envvar, str) else ""
        click.echo(
            f"warning: everybody on this machine can read {option} on the command line; use {other}{variable}", err=True
        )
    return value


def read_secret(file: str | Path) -> str:
    """The secret in a file, without the line break that editors put behind it."""
    path = Path(file)
    try:
        with path.open("rb") as opened:
            data = opened.read(_SECRET_BYTES_MAX + 1)
    except FileNotFoundError:
        raise NotFound(f"there is no {path}", "the file does not exist", "name a file that holds the secret") from None
    except PermissionError as error:
        raise PermissionDenied(f"{path} cannot be read", str(error.strerror)) from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read", str(error.strerror), "name a file that holds the secret") from None
    try:
        secret = data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} holds no secret", "it is not UTF-8 text") from None
    if not secret or len(data) > _SECRET_BYTES_MAX:
        raise InvalidInput(f"{path} holds no secret", "it is empty" if not secret else "it is too large")
    return secret
