"""Settings as they are written: dotted or nested keys, the node of a whole pipeline, and values that are what they must be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from math import inf
from sys import float_info
from typing import Any, Final, TypeVar

from penstock.errors import InvalidInput

__all__ = [
    "checked_list",
    "choice",
    "chosen",
    "grouped",
    "nested",
    "patience",
    "persistence_settings",
    "positive",
    "shown",
    "whole",
]

T = TypeVar("T")
_PERSISTENCE_URN: Final = ":processor:persistence"
# What files and the operating system count with.
_WHOLE_END: Final = 1 << 63
_SHOWN_CHARACTERS_MAX: Final = 80


def positive(name: str, value: Any, least: float | None = None) -> None:
    """A finite number above zero; or one of at least `least`."""
    if not _is_number(value) or not (0 < value < inf if least is None else least <= value < inf):
        bound = "above zero" if least is None else f"of {least} at least"
        raise InvalidInput(f"{name} is {shown(value)}", f"it must be a finite number {bound}")


def patience(name: str, value: Any) -> None:
    """None, which waits for ever, or a number of seconds."""
    if value is not None and not _is_number(value):
        raise InvalidInput(f"{name} is {shown(value)}", "it must be a number of seconds, or None to wait forever")


def whole(name: str, value: Any, least: int = 1) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < _WHOLE_END:
        bound = "above zero" if least == 1 else f"of {least} at least"
        raise InvalidInput(f"{name} is {shown(value)}", f"it must be a whole number {bound}, and below 2^63")


def checked_list(name: str, values: Any, kind: type[T], what: str) -> list[T]:
    """What a caller lists, as a list; a text is none, though its characters could be listed."""
    found = list(values) if isinstance(values, Iterable) and not isinstance(values, str | bytes) else [values]
    wrong = [one for one in found if not isinstance(one, kind)]
    if wrong or (len(found) == 1 and found[0] is values):
        raise InvalidInput(f"{name} is {shown(wrong[0] if wrong else values)}", f"it must be a list of {what}")
    return found


def shown(value: Any) -> str:
    """A value in an error: the beginning of a long one. Python refuses to write out the longest integers at all."""
    if isinstance(value, int) and abs(value) > float_info.max:
        return "an integer of hundreds of digits"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}…"


def _is_number(value: Any) -> bool:
    """A number, infinity included, that a clock can count with: an integer beyond any float is none."""
    is_one = isinstance(value, int | float) and not isinstance(value, bool) and value == value
    return is_one and (isinstance(value, float) or abs(value) <= float_info.max)


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as groups; a group that is named in both ways has the keys of both."""
    if not isinstance(settings, Mapping):
        raise InvalidInput(f"the settings are {shown(settings)}", "they must be a mapping of keys to values")
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
