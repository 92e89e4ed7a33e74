"""Commands that all count on one page: each has a page of its own otherwise, which is gone with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click import Command
from click.testing import CliRunner

from penstock.cli.settings.observing import Watching
from penstock.observability import LiveObserver, names

__all__ = ["run", "shared_observer"]


def shared_observer(monkeypatch: pytest.MonkeyPatch) -> LiveObserver:
    shared = LiveObserver()
    shared.declare(names.METRICS.values())

    @contextmanager
    def opened(_: Watching, **_options: Any) -> Iterator[LiveObserver]:
        yield shared

    monkeypatch.setattr(Watching, "opened", opened)
    return shared


def run(command: Command, *arguments: object, input: bytes | None = None) -> None:
    result = CliRunner().invoke(command, list(map(str, arguments)), input=input, catch_exceptions=False)
    assert result.exit_code == 0, result.output
