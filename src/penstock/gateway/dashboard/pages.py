"""Turns views into HTML: templates with escaping on, and the highlighting of words in passages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from penstock.gateway.http.exchange import HttpAnswer

__all__ = [
    "HTML",
    "SECURITY_HEADERS",
    "curve_points",
    "excerpt",
    "highlighted",
    "html_page",
    "static_file",
    "static_version",
]

HTML: Final = "text/html; charset=utf-8"
_FOLDER: Final = Path(__file__).parent
_STATIC_TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
# No script, style, font, frame or request of anybody else, and none written into the page.
SECURITY_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    # With `no-referrer`, browsers send `Origin: null` with our own forms, which looks like another site's.
    "referrer-policy": "same-origin",
}
_WORD: Final = re.compile(r"\w{2,}")
_WORDS_MAX: Final = 20
_EXCERPT_CHARACTERS: Final = 900


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["highlighted"] = highlighted
    environment.globals["curve_points"] = curve_points
    environment.globals["excerpt"] = excerpt
    environment.globals["static_version"] = static_version
    return environment


def html_page(template: str, status: int = 200, **given: Any) -> HttpAnswer:
    text = _environment().get_template(template).render(**given)
    return HttpAnswer(text.encode(), status, HTML, SECURITY_HEADERS)


@lru_cache(maxsize=32)
def static_version(name: str) -> str:
    """A few characters that change with the file, for its address: browsers keep files for an hour."""
    return blake2b((_FOLDER / "static" / name).read_bytes(), digest_size=6).hexdigest()


@lru_cache(maxsize=32)
def static_file(name: str) -> HttpAnswer | None:
    """A file that comes with the dashboard; None for any other name."""
    known = {path.name: path for path in (_FOLDER / "static").iterdir()}
    path = known.get(name)
    if path is None or path.suffix not in _STATIC_TYPES:
        return None
    kept = {"cache-control": "public, max-age=3600", **SECURITY_HEADERS}
    return HttpAnswer(path.read_bytes(), content_type=_STATIC_TYPES[path.suffix], headers=kept)


def curve_points(rates: Sequence[float], width: float = 100.0, height: float = 24.0) -> str:
    """Rates as the points of a line in a box, from the left to the right; empty when there is nothing to see."""
    highest = max(rates, default=0.0)
    if len(rates) < 2 or highest <= 0:
        return ""
    step = width / (len(rates) - 1)
    return " ".join(f"{number * step:.1f},{height - rate / highest * height:.1f}" for number, rate in enumerate(rates))


def excerpt(text: str, question: str, characters: int = _EXCERPT_CHARACTERS) -> str:
    """The part of a passage that has most words of the question; all of it when it is short."""
    if len(text) <= characters:
        return text
    words = {word.lower() for word in _WORD.findall(question)[:_WORDS_MAX]}
    places = [found.start() for found in _WORD.finditer(text) if found[0].lower() in words]
    best = max(places, key=lambda start: sum(start <= place < start + characters for place in places), default=0)
    start = max(0, text.rfind("\n", 0, best) + 1 if best - text.rfind("\n", 0, best) < 200 else best - 100)
    cut = text[start : start + characters]
    return ("… " if start else "") + cut.strip() + (" …" if start + characters < len(text) else "")


def highlighted(text: str, question: str) -> Markup:
    """The text with the words of the question marked."""
    words = {word.lower() for word in _WORD.findall(question)[:_WORDS_MAX]}
    if not words:
        return escape(text)
    out: list[Markup] = []
    at = 0
    for found in _WORD.finditer(text):
        if found[0].lower() in words:
            out += [escape(text[at : found.start()]), Markup("<mark>"), escape(found[0]), Markup("</mark>")]
            at = found.end()
    out.append(escape(text[at:]))
    return Markup("").join(out)
