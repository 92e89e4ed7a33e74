"""The last events of the gateway and its jobs, kept for the dashboard and shown on the terminal as the user asked.

Jobs write their events as JSON, one a line, among whatever else they and their libraries write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.gateway import ShownEvent, Viewer
from penstock.observability import Event, names
from penstock.undecodable import UNDECODABLE

__all__ = ["EventBoard"]

_KEPT: Final = 1_000
_TEXT_CHARACTERS_MAX: Final = 500
_BRIEF_CHARACTERS_MAX: Final = 200
_LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_OWN_FIELDS: Final = frozenset({"event", "level", "timestamp", "traceId"})
_BAD: Final = ("warning", "error", "critical")
# What a person looks for first.
_FIRST: Final = ("error", "reason", "line", "object", "job", "subscriber", "status")
_TENANT_FIELDS: Final = ("tenant", "tenantId")
SERVE: Final = "serve"


@dataclass(frozen=True, slots=True)
class _Kept:
    shown: ShownEvent
    time_ms: int
    tenant: str
    # The fields that say most, for a place with little room.
    brief: str


class EventBoard:
    """Newest last. `show_from` is the least severe level of jobs' events that goes to the terminal."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, *, show_from: str = "warning") -> None:
        self._clock, self._show_from = clock, show_from
        self._kept: deque[_Kept] = deque(maxlen=_KEPT)
        self._number = 0

    def heard(self, event: Event, fields: Mapping[str, Any]) -> None:
        """An event of this process."""
        self._add(SERVE, event.level, event.name, fields)

    def line(self, source: str, text: str) -> str | None:
        """A line of a job; what the terminal shows of it, if anything."""
        found = _as_event(text)
        if found is None:
            return text
        level, name = str(found.get("level", "info")), str(found["event"])
        fields = {key: value for key, value in found.items() if key not in _OWN_FIELDS}
        said = self._add(source, level, name, fields)
        if level not in _LEVELS or _LEVELS.index(level) < _LEVELS.index(self._show_from):
            return None
        return f"{level}: {name} {said}".rstrip()

    def shown(self, viewer: Viewer, after: int = 0) -> list[ShownEvent]:
        """Those behind a number, newest first. Whoever is no administrator sees only what names their tenant."""
        return [
            one.shown
            for one in reversed(self._kept)
            if one.shown.number > after and (viewer.is_admin or one.tenant == viewer.tenant)
        ]

    def last_bad(self, prefixes: tuple[str, ...], source: str | None = None, within_ms: int = 3_600_000) -> str:
        """The newest warning or error whose name begins so, with its age; empty when there is none."""
        now = self._clock.now_ms()
        for one in reversed(self._kept):
            if now - one.time_ms > within_ms:
                return ""
            event = one.shown
            if event.level in _BAD and event.name.startswith(prefixes) and source in (None, event.source):
                known = names.EVENTS.get(event.name)
                what = known.help if known else event.name
                return f"{_age((now - one.time_ms) / 1000)} ago: {what} {one.brief}".rstrip()
        return ""

    def _add(self, source: str, level: str, name: str, fields: Mapping[str, Any]) -> str:
        self._number += 1
        now = self._clock.now_ms()
        ordered = {key: fields[key] for key in (*_FIRST, *fields) if key in fields}
        text = " ".join(f"{key}={value}" for key, value in ordered.items())[:_TEXT_CHARACTERS_MAX]
        brief = " ".join(f"{key}={fields[key]}" for key in _FIRST if key in fields)[:_BRIEF_CHARACTERS_MAX]
        tenant = next((str(fields[key]) for key in _TENANT_FIELDS if key in fields), "")
        time = datetime.fromtimestamp(now / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        event = ShownEvent(self._number, time, level, source, name, text)
        self._kept.append(_Kept(event, now, tenant, brief or text[:_BRIEF_CHARACTERS_MAX]))
        return text


def _as_event(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        found = msgspec.json.decode(text)
    except UNDECODABLE:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("event"), str) else None


def _age(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
