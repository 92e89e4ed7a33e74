"""Settings as they are written: dotted or nested keys, the node of a whole pipeline, and values that are what they must be."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import inf
from typing import Any, Final

from penstock.errors import InvalidInput

__all__ = ["choice", "chosen", "grouped", "nested", "patience", "persistence_settings", "positive", "whole"]

_PERSISTENCE_URN: Final = ":processor:persistence"


def positive(name: str, value: Any, least: float | None = None) -> None:
    """A finite number above zero; or one of at least `least`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not (0 < value < inf if least is None else least <= value < inf):
        bound = "above zero" if least is None else f"of {least} at least"
        raise InvalidInput(f"{name} is {value!r}", f"it must be a finite number {bound}")


def patience(name: str, value: Any) -> None:
    """None, which waits for ever, or a number of seconds."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (is_number and value == value):
        raise InvalidInput(f"{name} is {value!r}", "it must be a number of seconds, or None to wait forever")


def whole(name: str, value: Any, least: int = 1) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        bound = "above zero" if least == 1 else f"of {least} at least"
        raise InvalidInput(f"{name} is {value!r}", f"it must be a whole number {bound}")


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as groups; a group that is named in both ways has the keys of both."""
    found: dict[str, Any] = {}
    for key, given in settings.items():
        head, _, rest = str(key).partition(".")
        value = {rest: given} if rest else given
        if isinstance(value, Mapping):
            before = found.get(head, {})
            if not isinstance(before, Mapping):
                raise InvalidInput(f"{head} is not a group of settings", f"it is {before!r}, and {key} is in it")
            found[head] = {**before, **nested(value)}
        else:
            found[head] = value
    return found


def persistence_settings(settings: dict[str, Any]) -> dict[str, Any]:
    nodes = settings.get("nodes")
    if not isinstance(nodes, dict):
        return dict(settings)
    found = {
        name: node
        for name, node in nodes.items()
        if isinstance(node, dict) and str(node.get("plugin_urn", "")).endswith(_PERSISTENCE_URN)
    }
    if len(found) != 1:
        raise InvalidInput(
            f"the pipeline has {len(found)} nodes for persistence",
            f"one of {', '.join(map(str, nodes))} must have a plugin_urn that ends in {_PERSISTENCE_URN}",
        )
    ((name, node),) = found.items()
    config = node.get("config") or {}
    if not isinstance(config, dict):
        raise InvalidInput(f"nodes.{name}.config is not a group of settings", f"it is {config!r}")
    return dict(config)


def choice(kind: type[StrEnum], name: str, value: Any) -> StrEnum:
    # YAML reads a bare `off` as a truth value.
    text = "off" if value is False else str(value)
    try:
        return kind(text)
    except ValueError:
        raise InvalidInput(f"{name} cannot be {text!r}", f"choose {', '.join(kind)}") from None


def chosen(config: Any, name: str, kind: type[StrEnum], prefix: str = "") -> None:
    """Make a field the member that its text names: as a text it would equal no member where it counts."""
    object.__setattr__(config, name, choice(kind, f"{prefix}{name}", getattr(config, name)))


def grouped(config: Any, name: str, kind: type) -> None:
    """Refuse a field that is no such group of settings."""
    value = getattr(config, name)
    if not isinstance(value, kind):
        raise InvalidInput(f"{name} is {value!r}", f"it must be a {kind.__name__}")
